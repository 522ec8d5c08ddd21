"""Devices by name and their attributes, memory in every form, and bad input, which leaves no state."""

import errno
import struct

import pytest

from weft.driver.queue.command import CommandError
from weft.driver.terms.enums import MTU, AccessFlag, QPState, QPType, ReregFlag, SendFlags, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue, PyverbsError, PyverbsRDMAError, PyverbsUserError
from weft.driver.terms.port_enums import GidType, LinkLayer, NodeType, PortState
from weft.driver.verbs.addr import GID, AHAttr, GlobalRoute
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.device import (
    Context,
    add_device,
    get_device_list,
    guid_format,
    phys_state_to_str,
    remove_device,
    speed_to_str,
    translate_link_layer,
    translate_mtu,
    width_to_str,
)
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx, connected_attr, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi
from weft.model.functional.host import connected_pair

MACS, IPS = (0x02_0000_0000_01, 0x02_0000_0000_02), (0x0A00_0001, 0x0A00_0002)
WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE


@pytest.fixture
def names():
    """Provide the names of two connected devices."""
    _, devices, _ = connected_pair(seed=1)
    found = [add_device(device, mac=mac, ip=ip) for device, mac, ip in zip(devices, MACS, IPS, strict=True)]
    yield found
    for name in found:
        remove_device(name)
    assert not any(device.memory._pages for device in devices)


def test_devices_are_found_by_name(names):
    listed = get_device_list()
    assert [device.name.decode() for device in listed] == names and listed[0].node_type is NodeType.CA
    assert guid_format(listed[0].guid) == "0000:00ff:fe00:0001"
    with pytest.raises(PyverbsUserError):
        Context()
    with pytest.raises(PyverbsRDMAError, match="find"):
        Context(name="weft77")
    with Context(name=names[0]) as one, Context(name=names[0]) as two, Context(name=names[1]) as other:
        assert one.card is two.card is not other.card and one.name == names[0]
        with pytest.raises(PyverbsRDMAError) as error:
            remove_device(names[0])
        assert error.value.error_code == errno.EBUSY
        assert PD(one).handle != PD(two).handle
    with Context(name=names[0]) as again:
        assert again.card is not one.card


def test_a_device_is_removed_by_the_name_in_the_list():
    _, (device, _), _ = connected_pair(seed=1)
    before = get_device_list()
    add_device(device, mac=MACS[0], ip=IPS[0])
    [listed] = [device for device in get_device_list() if device not in before]
    with Context(name=listed.name), pytest.raises(PyverbsRDMAError, match="the device weft0 is open"):
        remove_device(listed.name)
    remove_device(listed.name)
    assert get_device_list() == before


def test_a_context_is_no_pd(names):
    with Context(name=names[0]) as context, PD(context) as pd, CQ(cqe=4, context=context) as cq, MR(pd, 64, 0) as mr:
        for call in (lambda: QP(context, rc_init_attr(cq)), lambda: mr.rereg(ReregFlag.CHANGE_PD, context),
                     lambda: QP(context, QPInitAttrEx(qp_type=QPType.RC, scq=cq, rcq=cq, pd=context))):
            with pytest.raises(InvalidValue, match="PD"):
                call()


def test_device_attributes_are_reported(names):
    with Context(name=names[1]) as context:
        device, port = context.query_device(), context.query_port(1)
        assert device.max_qp == context.capabilities.max_qp - 2 and device.max_mr == context.capabilities.max_mr
        assert device.vendor_id == abi.PCI_VENDOR_ID and device.fw_version == ".".join(map(str, abi.VERSION))
        assert context.query_device_ex().orig_attr == device and device.phys_port_cnt == 1
        assert (port.state, port.link_layer, port.active_mtu) == (PortState.ACTIVE, LinkLayer.ETHERNET, MTU.MTU_4096)
        assert [width_to_str(port.active_width), speed_to_str(port.active_speed), phys_state_to_str(port.phys_state),
                translate_mtu(port.max_mtu), translate_link_layer(port.link_layer)] == [
                    "4X (2)", "25.0 Gbps (32)", "Link up (5)", "4096 (5)", "ETHERNET"]
        gid = context.query_gid(1, 0)
        assert gid.gid == str(gid) == "0000:0000:0000:0000:0000:ffff:0a00:0002" and gid.ipv4 == IPS[1]
        [entry] = context.query_gid_table(1)
        assert entry == context.query_gid_ex(1, 0) and entry.gid == gid.gid and entry.gid_type is GidType.ROCE_V2
        assert context.query_pkey(1, 0) == 0xFFFF and context.query_gid_type(1, 0) == 1
        for call, code in (
                (lambda: context.query_port(0), errno.EINVAL), (lambda: context.query_port(2), errno.EINVAL),
                (lambda: context.query_gid(1, 1), errno.EINVAL), (lambda: context.query_gid(2, 0), errno.EINVAL),
                (lambda: context.query_gid_ex(1, 1), errno.ENODATA), (lambda: context.query_pkey(1, 1), errno.EINVAL),
                (lambda: context.query_gid_table(0), -errno.EINVAL), (lambda: context.cmd_fd, errno.EOPNOTSUPP)):
            with pytest.raises(PyverbsRDMAError) as error:
                call()
            assert error.value.error_code == code


@pytest.mark.parametrize("text", ["", "::1", "0000:0000:0000:0000:0000:ffff:0a00", "g000" + ":0000" * 7])
def test_invalid_gid_is_rejected(text):
    with pytest.raises(PyverbsUserError):
        GID(text)


def test_programs_exchange_number_psn_gid_key_and_address(names):
    """The programs exchange nothing else: MAC addresses are resolved."""
    a, b = (Context(name=name) for name in names)
    ends = []
    for context in (a, b):
        pd, cq = PD(context), CQ(context, 8)
        ends.append((context, MR(pd, 4096, WRITE), cq, QP(pd, rc_init_attr(cq))))
    sent = [struct.pack("<3I40sQ", qp.qp_num, qp.attr.sq_psn, mr.rkey, str(context.query_gid(1, 0)).encode(), mr.buf)
            for context, mr, _, qp in ends]
    received = [struct.unpack("<3I40sQ", data) for data in sent[::-1]]
    for (_, _, _, qp), (qpn, psn, _, gid, _) in zip(ends, received, strict=True):
        route = AHAttr(is_global=1, gr=GlobalRoute(dgid=gid.rstrip(b"\0").decode()))
        qp.to_rts(QPAttr(dest_qp_num=qpn, rq_psn=psn, ah_attr=route, sq_psn=qp.attr.sq_psn, timeout=14, retry_cnt=7,
                         rnr_retry=7, min_rnr_timer=12, max_rd_atomic=1, max_dest_rd_atomic=1, qp_access_flags=WRITE))
    _, mr, cq, qp = ends[0]
    mr.write("hello")
    wr = SendWR(1, WROpcode.RDMA_WRITE, 1, 0, [SGE(mr.buf, 5, mr.lkey)])
    wr.set_wr_rdma(received[0][2], received[0][4])
    qp.post_send(wr)
    while not len(cq):
        for context in (b, a):
            context.progress()
        a.wait(1_000)
    assert cq.poll()[1][0].status is WCStatus.SUCCESS and ends[1][1].read(5, 0) == b"hello"
    for context in (a, b):
        context.close()


def test_unresolved_address_times_out(names):
    with Context(name=names[0]) as context:
        cq, pd = CQ(context, 8), PD(context)
        qp, mr = QP(pd, rc_init_attr(cq)), MR(pd, 64, WRITE)
        peer = qp.connection.__class__(77, 0, str(GID.of_ipv4(0x0A00_0063)))
        qp.connect(peer)
        qp.post_send(SendWR(5, WROpcode.RDMA_WRITE, 1, 0, [SGE(mr.buf, 5, mr.lkey)], remote_addr=1, rkey=1))
        assert [(wc.wr_id, wc.status) for wc in cq.wait(1, timeout_ns=10**9)] == [(5, WCStatus.RETRY_EXC_ERR)]
        assert context.counts["arp_frames_dropped"] == 0 and qp.qp_state is QPState.ERR


@pytest.mark.parametrize("command", ["_mr_create", "_page_table_write"])
def test_region_whose_change_the_card_rejects_can_be_closed(names, monkeypatch, command):
    with Context(name=names[0]) as context:
        pd, free = PD(context), context.pte_ranges.free_total
        own = context.device.alloc(8192, align=4096)
        made = MR(pd, 100, AccessFlag.LOCAL_WRITE)
        with monkeypatch.context() as patch:
            patch.setattr(context.device.card.tables, command, lambda *_: abi.CommandStatus.BAD_VALUE)
            with pytest.raises(CommandError, match="BAD_VALUE"):
                made.rereg(ReregFlag.CHANGE_TRANSLATION, addr=own.va, length=4000)
        made.close()
        assert made.closed and context.pte_ranges.free_total == free and not context.device.card.tables.mrs
        context.device.free(own)


def test_memory_in_every_form(names):
    with Context(name=names[0]) as context:
        pd, other = PD(context), PD(context)
        own = context.device.alloc(8192, align=4096)
        whole = MR(pd, 8192, WRITE, own.va)
        part = MR(pd, buffer=own, access=WRITE, address=own.va + 5000, length=100)
        made = MR(pd, 100, AccessFlag.LOCAL_WRITE)
        assert (whole.buf, whole.length, part.buf, part.length) == (own.va, 8192, own.va + 5000, 100)
        part.write("some text", 4, 3)
        assert whole.read(6, 5002) == b"\0some\0" and made.length == 100 and made.handle == made.index
        keys, index = (made.lkey, made.rkey), made.index
        made.rereg(ReregFlag.CHANGE_ACCESS | ReregFlag.CHANGE_PD, other, access=WRITE)
        made.rereg(ReregFlag.CHANGE_TRANSLATION, addr=own.va + 4000, length=4000)
        entry = context.device.card.tables.mrs[index]
        assert (entry.va, entry.length, entry.pd, entry.access) == (own.va + 4000, 4000, other.handle, int(WRITE))
        assert keys == (made.lkey, made.rkey) and made in other.mrs and made not in pd.mrs
        assert made.read(9, 1003) == b"some" + bytes(5)
        free = context.pte_ranges.free_total
        for call in (lambda: made.rereg(0), lambda: made.rereg(8), lambda: made.rereg(ReregFlag.CHANGE_PD),
                     lambda: made.rereg(ReregFlag.CHANGE_ACCESS, access=AccessFlag.REMOTE_WRITE),
                     lambda: made.rereg(ReregFlag.CHANGE_TRANSLATION, addr=own.va + 8000, length=4000),
                     lambda: made.rereg(ReregFlag.CHANGE_TRANSLATION)):
            with pytest.raises(PyverbsRDMAError):
                call()
        assert context.pte_ranges.free_total == free and context.device.card.tables.mrs[index] == entry
        other.close()
        assert made.closed and not whole.closed
        with pytest.raises(PyverbsUserError):
            made.read(1, 0)
        for mr in (whole, part):
            mr.close()
        context.device.free(own)


def test_close_closes_dependent_objects(names):
    context = Context(name=names[0])
    channel, pds = CompChannel(context), [PD(context), PD(context)]
    cqs = [CQ(context, 4, None, channel), CQ(context, 4)]
    mrs = [MR(pd, 64, WRITE) for pd in pds]
    qps = [QP(pd, rc_init_attr(*each)) for pd in pds for each in (cqs, cqs[::-1], cqs[1:])]
    pds[0].close()
    assert [qp.closed for qp in qps] == [True] * 3 + [False] * 3 and [mr.closed for mr in mrs] == [True, False]
    channel.close()
    assert [qp.closed for qp in qps] == [True] * 5 + [False] and [cq.closed for cq in cqs] == [True, False]
    for each in (channel, pds[0], cqs[0], qps[0], mrs[0]):
        each.close()
    context.close()
    assert all(each.closed for each in (*pds, *cqs, *mrs, *qps)) and not context.open
    context.close()


def bad_calls(context):
    """Return calls that must be rejected."""
    pd, cq, closed = PD(context), CQ(context, 4), PD(context)
    closed.close()
    init, qp = rc_init_attr(cq, max_send_wr=1), QP(pd, rc_init_attr(cq))
    qp.connect(qp.connection)
    sge, large = [SGE(0, 1, 0)], 1 << 70

    def send(**fields):
        return lambda: qp.post_send(SendWR(**{"opcode": WROpcode.RDMA_WRITE, "sg": sge} | fields))

    return [
        lambda: PD(None), lambda: PD(pd), lambda: CQ(context, 0), lambda: CQ(context, -1), lambda: CQ(context, large),
        lambda: CQ(context, 4.5), lambda: CQ(context, "many"), lambda: CQ(context, 4, None, None, 1),
        lambda: CQ(context, 4, None, None, -1), lambda: cq.resize(0), lambda: cq.resize(large),
        lambda: cq.ack_events(1), lambda: MR(pd, 0, 1), lambda: MR(pd, -5, 1), lambda: MR(pd, 64, 2),
        lambda: MR(pd, 64, 8), lambda: MR(pd, 64, 16), lambda: MR(pd, 64, 32), lambda: MR(pd, 64, 64),
        lambda: MR(pd, 64, 1 << 30), lambda: MR(pd, 64, 1, 0x1234), lambda: MR(pd, 64, 1, implicit=True),
        lambda: MR(pd, 64, 1, page_bytes=5), lambda: MR(closed, 64, 1), lambda: MR(pd, "x", 1),
        lambda: QP(pd, QPInitAttr()), lambda: QP(closed, init), lambda: QP(None, init), lambda: QP(context, init),
        lambda: QP(context, QPInitAttrEx(qp_type=2, scq=cq, rcq=cq)), lambda: QP(pd, rc_init_attr(None)),
        lambda: QP(context, QPInitAttrEx(qp_type=2, scq=cq, rcq=cq, pd=pd, comp_mask=1, source_qpn=1)),
        lambda: QP(pd, rc_init_attr(cq, cap=QPCap(max_send_wr=large))), lambda: QP(pd, init, QPAttr(port_num=2)),
        lambda: QP(pd, init, QPAttr(qp_access_flags=large)), lambda: QP(pd, init, psn=1 << 24),
        lambda: qp.connect(qp.connection), lambda: qp.modify(QPAttr(qp_state=99), 1), lambda: qp.to_init(QPAttr()),
        lambda: qp.modify(QPAttr(qp_state=QPState.SQE), 1), lambda: qp.modify(connected_attr(qp.connection), 1 << 8),
        send(wr_id=-1), send(wr_id=large), send(opcode=99), send(opcode=WROpcode.TSO), send(send_flags=64),
        send(send_flags=SendFlags.IP_CSUM), send(num_sge=3), send(sg=[SGE(0, large, 0)]), send(sg=[SGE(0, 1, -1)]),
        send(sg=sge * 17), send(rkey=large), send(remote_addr=large), send(imm_data=-1),
        lambda: qp.post_recv(RecvWR(-1)), lambda: qp.post_recv(RecvWR(1, 5, sge)),
        lambda: qp.post_recv(RecvWR(1, sg=sge * 17)), lambda: context.query_port(99),
        lambda: AHAttr(is_global=1), lambda: GID("nonsense")]


def test_bad_input_leaves_no_objects(names):
    with Context(name=names[0]) as context:
        calls, tables = bad_calls(context), context.device.card.tables

        def counts():
            return ([len(table) for table in (context.pds, context.cqs, context.channels, context.mrs, tables.qps,
                                              tables.mrs, context.device.memory._pages)],
                    [(len(pd.qps), len(pd.mrs)) for pd in context.pds], [len(cq.qps) for cq in context.cqs],
                    len(context.qps._free), len(context.mr_indices._free), context.pte_ranges.free_total,
                    context.knitting.free_blocks)

        before = counts()
        for number, call in enumerate(calls):
            try:
                with pytest.raises((PyverbsError, TypeError, AttributeError)) as error:
                    call()
            except pytest.fail.Exception:
                pytest.fail(f"call {number} was taken")
            assert len(str(error.value)) > 10, f"call {number} gave no reason"
            assert counts() == before, f"call {number} left something"
