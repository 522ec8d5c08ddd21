"""Objects of the verbs: valid combinations, order of closing, and resources that a silent card may still use."""

import random

import pytest

from weft.driver.knitting.buffer import KnittingBuffer
from weft.driver.queue.command import CommandTimeout
from weft.driver.terms.enums import AccessFlag, EventType, QPAttrMask, QPState, WCStatus, WROpcode
from weft.driver.terms.errors import PyverbsRDMAError
from weft.driver.terms.wc import WC
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.device_list import add_device, remove_device
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, connected_attr, rc_init_attr
from weft.driver.verbs.qp_states import necessary
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.sim.pair.functional_pair import make_endpoints, make_pair
from weft.tb.test.driver.verbs.silent_card import Silent

WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE


def open_one(**config):
    return Context(FunctionalDevice(EventLoop()), mac=2, ip=3, config=ContextConfig(**config))


def make_qp(context, pd=None, **options):
    cq = CQ(context, 8)
    return QP(pd or PD(context), rc_init_attr(cq), **options)


# ------------------------------------------------------------------------------------------ making


@pytest.mark.parametrize("setting", [
    {"chunk_bytes": 0}, {"reorder_distance": -1}, {"reorder_distance": 0}, {"reorder_distance": 10**6},
    {"probe_timeout_ns": 0}, {"max_extents": 0}, {"extent_bytes": 100}, {"knitting_alpha": 0}, {"nic_slot_log2": 20},
    {"ring_log2": 0}, {"prefetch_depth": 0}, {"retransmit_slack": -1}, {"tx_poll_ns": 0}, {"waiting_runs_max": 0},
    {"command_timeout_ns": 0}, {"node_age_ns": abi.NODE_AGE_MAX_NS + 1}, {"chunk_bytes": "many"}], ids=str)
def test_impossible_settings_are_rejected(setting):
    device = FunctionalDevice(EventLoop())
    with pytest.raises((ValueError, TypeError)):
        Context(device, mac=2, ip=3, config=ContextConfig(**setting))
    Context(device, mac=2, ip=3).close()


@pytest.mark.parametrize("address", [{"mac": 1 << 48, "ip": 1}, {"mac": 1, "ip": 1 << 32}, {"mac": -1, "ip": 1}],
                         ids=str)
def test_impossible_addresses_are_rejected(address):
    with pytest.raises(ValueError):
        Context(FunctionalDevice(EventLoop()), **address)


@pytest.mark.parametrize("attribute", [
    {"timeout": 32}, {"timeout": -1}, {"retry_cnt": 8}, {"rnr_retry": 8}, {"min_rnr_timer": 32}, {"path_mtu": 6},
    {"path_mtu": 0}, {"probe_timeout_ns": -1}, {"retry_cnt": 99}, {"timeout": 1.5}], ids=str)
def test_impossible_attributes_are_rejected_without_effect(attribute):
    qp = make_qp(open_one())
    with pytest.raises((ValueError, TypeError)):
        qp.connect(qp.connection, **attribute)
    assert qp.qp_state is QPState.RESET
    qp.connect(qp.connection)


@pytest.mark.parametrize("cap", [{"max_send_wr": -1}, {"max_recv_wr": 1 << 21}, {"max_send_sge": 17},
                                 {"max_inline_data": 1025}], ids=str)
def test_impossible_capacities_are_rejected(cap):
    context = open_one()
    cq = CQ(context, 8)
    with pytest.raises(ValueError):
        QP(PD(context), rc_init_attr(cq, **cap))
    cq.close()


@pytest.mark.parametrize("psn", [-1, 1 << 24])
def test_impossible_psn_is_rejected(psn):
    with pytest.raises(ValueError, match="psn"):
        make_qp(open_one(), psn=psn)


def test_objects_of_two_contexts_do_not_mix():
    one, other = open_one(), open_one()
    cq = CQ(other, 8)
    with pytest.raises(ValueError, match="of its context"):
        QP(PD(one), rc_init_attr(cq))
    with pytest.raises(ValueError, match="another context"):
        CQ(one, 8, channel=CompChannel(other))


def test_a_device_has_one_context():
    device = FunctionalDevice(EventLoop())
    with Context(device, mac=2, ip=3) as context:
        with pytest.raises(ValueError, match="another context"):
            Context(device, mac=2, ip=3)
        assert context.statistics()
    Context(device, mac=2, ip=3).close()


def test_remotely_writable_memory_is_locally_writable():
    with pytest.raises(ValueError, match="writable"):
        MR(PD(open_one()), 4_096, AccessFlag.REMOTE_WRITE)


def test_exhaustion_names_the_resource():
    context = open_one()
    pd = PD(context)
    for _ in range(context.capabilities.max_mr):
        MR(pd, 64, WRITE)
    with pytest.raises(MemoryError, match="memory regions"):
        MR(pd, 64, WRITE)


def test_failed_mr_leaves_nothing():
    context = open_one()
    pd, pages = PD(context), len(context.device.memory._pages)
    for length in ((context.capabilities.max_pte + 1) * 4096, 0, -1):
        with pytest.raises((MemoryError, ValueError)):
            MR(pd, length, WRITE)
    assert len(context.device.memory._pages) == pages
    assert len({MR(pd, 64, WRITE).index for _ in range(context.capabilities.max_mr)}) == context.capabilities.max_mr


def test_indices_and_key_tags_are_reused_late():
    context = open_one()
    indices, tags = [], []
    with PD(context) as pd:
        for _ in range(40 * context.capabilities.max_mr):
            with MR(pd, 64, WRITE) as mr:
                indices.append(mr.index)
                tags.append(mr.lkey & 0xFF)
    keys_of_one = [tags[i] for i, index in enumerate(indices) if index == 0]
    assert indices == list(range(context.capabilities.max_mr)) * 40
    assert len(set(keys_of_one)) == len(keys_of_one) == 40


# ---------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize("psn", [0, 7])
def test_requested_psn_is_used(psn):
    qp = make_qp(open_one(), psn=1234)
    qp.to_rtr(connected_attr(qp.connection))
    qp.modify(QPAttr(qp_state=QPState.RTS, sq_psn=psn), necessary(QPState.RTR, QPState.RTS))
    assert qp.attr.sq_psn == psn == qp.sender.queue.next_psn


def test_query_returns_a_copy():
    qp = make_qp(open_one())
    attr, init = qp.query()
    attr.qp_state, init.cap.max_send_wr = QPState.INIT, 0
    assert qp.qp_state is QPState.RESET and qp.cap.max_send_wr == 128
    qp.modify(attr, necessary(QPState.RESET, QPState.INIT))
    assert qp.qp_state is QPState.INIT


# ------------------------------------------------------------------------------------- closing


def test_closed_qp_stays_closed():
    context = open_one()
    pd = PD(context)
    qp = make_qp(context, pd)
    peer = qp.connection
    qp.close()
    heirs = [make_qp(context, pd) for _ in range(context.capabilities.max_qp - 2)]
    assert qp.index in [heir.index for heir in heirs] and qp.qp_num not in [heir.qp_num for heir in heirs]
    for call in (lambda: qp.connect(peer), qp.reset, lambda: qp.modify(QPAttr(qp_state=QPState.INIT), QPAttrMask.STATE),
                 lambda: qp.post_recv(RecvWR()), lambda: qp.post_send(SendWR())):
        with pytest.raises(ValueError):
            call()
    for heir in heirs:
        heir.connect(peer)
        heir.close()


def test_close_of_a_cq_closes_its_qps():
    context = open_one()
    qp = make_qp(context)
    qp.scq.close()
    assert qp.closed and not qp.pd.qps and not context.cqs
    qp.scq.close()
    with pytest.raises(ValueError, match="CQ"):
        QP(qp.pd, rc_init_attr(qp.scq))


def test_context_closes_its_objects_in_order(monkeypatch):
    pair = make_pair()
    ends = make_endpoints(pair, 8_192, qps=3)
    wr = SendWR(sg=[SGE(ends[0].mr.buf, 8_192, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
    wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
    ends[0].qps[0].post_send(wr)
    context, order = pair.contexts[0], []
    other = MR(PD(context), 64, WRITE)
    for kind in (QP, MR, PD, CQ):
        def close(thing, kind=kind, original=kind.close):
            if not thing.closed:
                order.append((kind.__name__, getattr(thing, "qp_num", None)))
            original(thing)
        monkeypatch.setattr(kind, "close", close)
    numbers = [qp.qp_num for qp in ends[0].qps]
    context.close()
    names = [name for name, _ in order]
    assert order[:3] == [("QP", number) for number in numbers]
    assert names.index("CQ") > max(i for i, name in enumerate(names) if name in ("MR", "PD"))
    assert other.closed and not pair.devices[0].memory._pages
    for call in (lambda: ends[0].cq.poll(), context.progress, lambda: context.wait(1), context.statistics,
                 lambda: PD(context), lambda: context.send_raw(bytes(60))):
        with pytest.raises(ValueError, match="closed"):
            call()
    ends[0].close()
    context.close()


# --------------------------------------------------------------------------------- completion queues


def test_cq_overrun_is_reported_and_stops_its_qps():
    pair = make_pair()
    ends = make_endpoints(pair, 8_192)
    context, pd = pair.contexts[0], ends[0].pd
    channel = CompChannel(context)
    cq = CQ(context, 2, channel=channel)
    qps = [QP(pd, rc_init_attr(cq, ends[0].cq)) for _ in range(2)]
    peers = [QP(ends[1].pd, rc_init_attr(ends[1].cq)) for _ in range(2)]
    for qp, peer in zip(qps, peers, strict=True):
        qp.connect(peer.connection)
        peer.connect(qp.connection)
    for n in range(4):
        wr = SendWR(wr_id=n, sg=[SGE(ends[0].mr.buf, 64, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
        wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
        qps[0].post_send(wr)
    while not cq.overrun:
        for each in pair.contexts:
            each.progress()
        context.wait(1_000)
    assert [qp.qp_state for qp in qps] == [QPState.ERR] * 2 and ends[0].qps[0].qp_state is QPState.RTS
    event = context.get_async_event(0)
    assert (event.event_type, event.element) == (EventType.CQ_ERR, cq) and not context.async_events
    assert channel.get_cq_event(timeout_ns=0) is cq
    assert [wc.wr_id for wc in cq.take(8)[1]] == [0, 1] and cq.lost >= 1
    with pytest.raises(OverflowError, match="lost"):
        cq.poll()
    qps[0].reset()
    with pytest.raises(ValueError, match="overran"):
        qps[0].connect(peers[0].connection)


def test_solicited_event_follows_solicited_completions_and_errors():
    context = open_one()
    channel = CompChannel(context)
    cq = CQ(context, 100, channel=channel)
    for solicited_only, wc, solicited, comes in (
            (True, WC(), False, False), (True, WC(), True, True), (True, WC(status=WCStatus.WR_FLUSH_ERR), False, True),
            (False, WC(), False, True)):
        cq.req_notify(solicited_only)
        cq.push(wc, solicited)
        assert bool(channel.events) is comes
        cq.push(WC(), solicited=True)     # matches any kind of notification
        while channel.events:
            assert channel.get_cq_event(cq) is cq
    cq.req_notify()
    cq.req_notify(solicited_only=True)    # does not restrict the earlier request
    cq.push(WC())
    assert channel.get_cq_event(cq, timeout_ns=0) is cq
    with pytest.raises(PyverbsRDMAError):
        cq.ack_events(cq.unacknowledged + 1)
    cq.ack_events(cq.unacknowledged)
    assert cq.unacknowledged == 0
    other = CQ(context, 1, channel=channel)
    other.req_notify()
    other.push(WC())
    with pytest.raises(PyverbsRDMAError, match="unexpected"):
        channel.get_cq_event(cq)


# ---------------------------------------------------------------------------------- a silent card


PATIENCE = {"command_timeout_ns": 20_000}


def test_memory_in_use_by_a_silent_card_is_not_freed():
    context = open_one(**PATIENCE)
    pd = PD(context)
    mr = MR(pd, 64, WRITE)
    qp, young = make_qp(context, pd), make_qp(context, pd)
    qp.connect(qp.connection)
    silent, pages = Silent(context.device), set(context.device.memory._pages)
    free = context.knitting.free_blocks
    for call in (mr.close, qp.close, context.statistics, lambda: MR(pd, 64, WRITE),
                 lambda: young.connect(qp.connection), mr.close, qp.close):
        with pytest.raises(CommandTimeout):
            call()
        assert set(context.device.memory._pages) >= pages and context.knitting.free_blocks <= free
        pages, free = set(context.device.memory._pages), context.knitting.free_blocks
    indices = len(context.mr_indices._free)
    silent.wake()
    mr.close()
    qp.close()
    young.close()
    assert mr.closed and qp.closed and young.closed and not context.device.card.tables.qps
    assert len(context.mr_indices._free) == indices + 1
    assert context.knitting.check()["free"] == context.knitting.total_blocks
    context.close()
    assert not context.device.memory._pages


def test_reset_ends_pending_work_of_a_silent_card():
    context = open_one(**PATIENCE)
    pd = PD(context)
    mr, other, qp = MR(pd, 64, WRITE), MR(pd, 64, WRITE), make_qp(context, pd)
    qp.connect(qp.connection)
    silent = Silent(context.device)
    for call in (mr.close, qp.close, context.statistics):
        with pytest.raises(CommandTimeout):
            call()
    silent.quiet = False
    context.device.card.rings.peek = silent.peek
    context.reset()
    mr.close()
    qp.close()
    assert list(context.device.card.tables.mrs) == [other.index] and not context.kept
    context.close()
    assert not context.device.memory._pages


def test_closing_the_context_of_a_silent_card_resets_it():
    context = open_one(**PATIENCE)
    pd = PD(context)
    mr, qp = MR(pd, 64, WRITE), make_qp(context, pd)
    qp.connect(qp.connection)
    Silent(context.device)
    context.close()
    assert mr.closed and qp.closed and not context.device.memory._pages


@pytest.mark.parametrize("end", ["again", "reset", "last"])
def test_a_context_that_a_silent_card_does_not_let_go_ends_with_the_card_at_the_latest(end):
    device = FunctionalDevice(EventLoop())
    name = add_device(device, mac=2, ip=3, config=ContextConfig(**PATIENCE))
    own, other = Context(name=name), Context(name=name)
    pd = PD(other)
    mr, qp = MR(pd, 64, WRITE), make_qp(other, pd)
    qp.connect(qp.connection)
    silent = Silent(device)
    for _ in range(2):
        with pytest.raises(CommandTimeout):
            other.close()
        assert other.open and other.leaving and len(own.kept) == 1
    if end == "again":
        silent.wake()
        other.close()
    elif end == "reset":
        silent.quiet = False
        own.reset()
    if end != "last":
        assert list(own.card.contexts) == [own] and not own.kept and not own.mrs and not own.qps.numbers
        MR(PD(own), 64, WRITE).close()
    own.close()
    assert mr.closed and qp.closed and not other.open and not device.memory._pages
    remove_device(name)


def test_failed_extent_allocation_does_not_stop_the_driver():
    device = FunctionalDevice(EventLoop())
    pool = KnittingBuffer(device, lambda *arguments: arguments[-1](), extent_bytes=4 * 64, max_extents=4)
    for _ in range(4):
        pool.open_chain()
    with pytest.raises(MemoryError, match="another QP"):
        pool.open_chain()

    def refuse(*_, **__):
        raise MemoryError("none left")

    device.alloc, alloc = refuse, device.alloc
    for now in range(10):
        pool.balance(now)
    assert pool.counts["no_memory"] and pool.counts["grown"] == 1
    device.alloc = alloc
    with pytest.raises(MemoryError, match="another QP"):
        pool.open_chain()
    pool.balance(20)
    assert pool.counts["grown"] == 2


@pytest.mark.parametrize("seed", range(3))
def test_random_choices_use_the_source_of_the_config(seed):
    def keys():
        with PD(open_one(random=random.Random(seed))) as pd:
            return [MR(pd, 64, WRITE).lkey for _ in range(5)]

    assert keys() == keys()


def test_flushed_receives_fit_or_overrun():
    """A flush that fills the CQ while its overrun is being reported is one overrun, and raises no exception."""
    context = open_one()
    cq = CQ(context, 2)
    qp = QP(PD(context), rc_init_attr(cq))
    qp.connect(qp.connection)
    for n in range(5):
        qp.post_recv(RecvWR(wr_id=n))
    qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    assert cq.overrun and cq.lost == 3 and len(context.async_events) == 1
    assert [(wc.wr_id, wc.status) for wc in cq.take(5)[1]] == [(n, WCStatus.WR_FLUSH_ERR) for n in range(2)]
