"""CMIDs of the port space UDP, and multicast groups, over functional cards."""

import pytest

from weft.driver.cm.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnectionFailed, JoinMCAttrEx, UDParam
from weft.driver.cm.enums import UDP_QKEY, AddrFlag, EventType, McJoinFlag, PortSpace
from weft.driver.connection.resolution import SidrStatus
from weft.driver.datagram.packet import GRH_BYTES, MULTICAST_QPN
from weft.driver.terms.enums import QPState, QPType, WCStatus
from weft.driver.terms.errors import InvalidValue, NotSupported
from weft.driver.verbs.addr import AH
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, QPCap, QPInitAttr
from weft.tb.test.driver.cm.hosts import CLIENT, LOSSY, PORT, SERVER, Hosts, private, rc

BYTES, GROUP = 500, "239.1.2.3"


def ud(**caps):
    return QPInitAttr(qp_type=QPType.UD, cap=QPCap(**{"max_send_wr": 8, "max_recv_wr": 8} | caps))


def service(**options):
    info = AddrInfo(src=SERVER, src_service=PORT, port_space=PortSpace.UDP, flags=AddrFlag.PASSIVE)
    cmid = CMID(info, ud(), **options)
    cmid.listen()
    return cmid


def requester(**options):
    return CMID(AddrInfo(src=CLIENT, dst=SERVER, dst_service=PORT, port_space=PortSpace.UDP), ud(), **options)


@pytest.mark.parametrize("link", [None, LOSSY], ids=["good", "lossy"])
def test_question_and_answer(link, bench_seed):
    """The client resolves the service; the server answers to the sender of the datagram."""
    done = []

    def server():
        with service() as on, on.get_request() as cmid:
            assert cmid.private_data[:6] == b"please" and cmid.qp.qp_state is QPState.RTS
            mr = cmid.reg_msgs(BYTES + GRH_BYTES)
            cmid.post_recv(mr)
            cmid.post_recv(mr)
            cmid.accept(private(b"welcome"))
            wc = cmid.get_recv_comp()
            assert mr.read(4, GRH_BYTES) == b"ping"
            ah = AH(cmid.pd, wc=wc, grh=mr.buf, port_num=1)
            while not done:
                cmid.post_ud_send(mr, ah, wc.src_qp, length=BYTES)
                assert cmid.get_send_comp().status is WCStatus.SUCCESS
                cmid.context.serve(100_000)

    def client():
        with CMID(CMEventChannel(), port_space=PortSpace.UDP) as cmid:
            info = AddrInfo(src=CLIENT, dst=SERVER, dst_service=PORT, port_space=PortSpace.UDP)
            for call, kind in ((lambda: cmid.resolve_addr(info), EventType.ADDR_RESOLVED),
                               (cmid.resolve_route, EventType.ROUTE_RESOLVED), (lambda: cmid.create_qp(ud()), None),
                               (lambda: cmid.connect(private(b"please")), EventType.ESTABLISHED)):
                call()
                event = None if kind is None else CMEvent(cmid.event_channel)
                assert kind is None or event.event_type is kind
            found = UDParam(event)
            event.ack_cm_event()
            assert found.qkey == UDP_QKEY and found.private_data[:7] == b"welcome"
            mr, ah = cmid.reg_msgs(BYTES + GRH_BYTES), AH(cmid.pd, attr=found.ah_attr)
            cmid.post_recv(mr)
            while not len(cmid.qp.rcq):
                mr.write(b"ping", 4, 0)
                cmid.post_ud_send(mr, ah, found.qp_num, length=BYTES)
                assert cmid.get_send_comp().status is WCStatus.SUCCESS
                cmid.context.serve(100_000)
            done.append(True)
            assert cmid.get_recv_comp().status is WCStatus.SUCCESS
            with pytest.raises(InvalidValue, match="no address"):
                UDParam(event)

    with Hosts(bench_seed, link) as hosts:
        hosts.run(server, client)


def test_rejection_and_missing_service():
    done = []

    def server():
        with service() as on:
            with on.get_request() as cmid:
                cmid.reject(b"busy")
                with pytest.raises(InvalidValue, match="not answered"):
                    cmid.accept()
            on.identifier.listener.close()
            while not done:
                on.context.serve(100_000)

    def client():
        with requester() as cmid:
            with pytest.raises(ConnectionFailed) as failed:
                cmid.connect()
            assert (failed.value.event.type, failed.value.event.status) == (EventType.UNREACHABLE, SidrStatus.REJECTED)
            assert cmid.private_data[:4] == b"busy"
        with requester() as cmid, pytest.raises(ConnectionFailed) as failed:
            cmid.connect()
        assert failed.value.event.status == SidrStatus.UNSUPPORTED
        done.append(True)

    with Hosts() as hosts:
        hosts.run(server, client)


def test_a_queue_pair_of_the_program():
    def client():
        channel = CMEventChannel()
        with CMID(channel, port_space=PortSpace.UDP) as cmid:
            cmid.bind_addr(AddrInfo(src=CLIENT, flags=AddrFlag.PASSIVE))
            from_attr, mask = cmid.init_qp_attr(QPState.INIT)
            assert from_attr.qkey == UDP_QKEY
            cq = CQ(cmid.context, 4)
            qp = QP(cmid.pd, QPInitAttr(QPType.UD, None, cq, cq, None, QPCap()))
            qp.modify(from_attr, mask)
            with pytest.raises(InvalidValue, match="needs none"):
                cmid.init_qp_attr(QPState.RTR)
            qp.close()
            cq.close()

    with Hosts() as hosts:
        hosts.run(lambda: None, client)


def test_wrong_uses():
    def client():
        with CMID(AddrInfo(src=CLIENT, dst=CLIENT, dst_service=PORT, port_space=PortSpace.UDP), ud()) as cmid:
            for call in (cmid.disconnect, cmid.establish, cmid.accept,
                         lambda: cmid.join_multicast(AddrInfo(dst=SERVER)),
                         lambda: cmid.leave_multicast(AddrInfo(dst=GROUP)), cmid.join_multicast):
                with pytest.raises(InvalidValue):
                    call()
            with pytest.raises(NotSupported, match="full members"):
                cmid.join_multicast(mc_attr=JoinMCAttrEx(AddrInfo(dst=GROUP), 3, McJoinFlag.SENDONLY_FULLMEMBER))
        with pytest.raises(InvalidValue, match="port space UDP"):
            CMID(AddrInfo(src=CLIENT, dst=CLIENT, port_space=PortSpace.UDP), rc())
        with CMID(AddrInfo(src=CLIENT, dst=CLIENT), rc()) as cmid, pytest.raises(InvalidValue, match="port space UDP"):
            cmid.join_multicast(AddrInfo(dst=GROUP))
        with pytest.raises(NotSupported, match="IPOIB"):
            CMID(CMEventChannel(), port_space=PortSpace.IPOIB)

    with Hosts() as hosts:
        hosts.run(lambda: None, client)


@pytest.mark.parametrize("extended", [False, True])
def test_multicast(extended):
    joined, got = [], []

    def member(source):
        channel = CMEventChannel()
        cmid = CMID(channel, port_space=PortSpace.UDP)
        cmid.resolve_addr(AddrInfo(src=source, dst=GROUP, port_space=PortSpace.UDP))
        assert CMEvent(channel).event_type is EventType.ADDR_RESOLVED
        cmid.create_qp(ud())
        group = AddrInfo(src=GROUP)
        cmid.join_multicast(**({"mc_attr": JoinMCAttrEx(group, 1)} if extended else {"addr": group}))
        event = CMEvent(channel)
        assert event.event_type is EventType.MULTICAST_JOIN
        joined.append(source)
        return cmid, UDParam(event)

    def server():
        cmid, _ = member(SERVER)
        with cmid:
            mr = cmid.reg_msgs(BYTES + GRH_BYTES)
            cmid.post_recv(mr)
            got.append(cmid.get_recv_comp())
            assert mr.read(5, GRH_BYTES) == b"group"
            cmid.leave_multicast(AddrInfo(dst=GROUP))
            with pytest.raises(InvalidValue, match="not attached"):
                cmid.leave_multicast(AddrInfo(dst=GROUP))

    def client():
        cmid, found = member(CLIENT)
        with cmid:
            assert (found.qp_num, found.qkey) == (MULTICAST_QPN, UDP_QKEY)
            mr = cmid.reg_msgs(BYTES)
            mr.write(b"group")
            ah = AH(cmid.pd, attr=found.ah_attr)
            while not got:
                cmid.post_ud_send(mr, ah, found.qp_num)
                cmid.get_send_comp()
                cmid.context.serve(200_000)

    with Hosts() as hosts:
        hosts.run(server, client)
    assert got[0].byte_len == BYTES + GRH_BYTES and len(joined) == 2

