"""Card that fails while its driver runs: every wait ends with an error message, and nothing stays allocated."""

import pytest

from weft.driver.device.health import DMA_LOST, GONE, RESET, DeviceFatal
from weft.driver.terms.enums import AccessFlag, EventType, QPAttrMask, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QPAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract.abi import CommandOpcode
from weft.tb.sim.pair.functional_pair import make_endpoints, make_pair, transfer
from weft.tb.test.driver.device.failing_card import FailingCard

LENGTH, SILENCE_NS = 1 << 16, 200_000
REASONS = {"gone": GONE, "reset": RESET, "without memory": DMA_LOST}
HOW = pytest.mark.parametrize("how", REASONS)


def post(ends, count, flags=SendFlags.SIGNALED):
    for number in range(count):
        wr = SendWR(wr_id=number, sg=[SGE(ends[0].mr.buf, LENGTH // 2, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE,
                    send_flags=flags)
        wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
        ends[0].qps[number % len(ends[0].qps)].post_send(wr)


def failing(how, qps=2):
    """Let the card fail with requests outstanding and receives posted; return (pair, ends, failing card)."""
    pair = make_pair(ContextConfig(silence_ns=SILENCE_NS), seed=5)
    ends = make_endpoints(pair, LENGTH, qps=qps)
    ends[0].qps[0].post_recv(RecvWR(wr_id=99))
    post(ends, 3 * qps)
    pair.contexts[0].progress()
    pair.loop.run(pair.loop.now_ns + 500)
    return pair, ends, FailingCard(pair.devices[0], how)


@HOW
def test_every_wait_ends(how):
    pair, ends, card = failing(how)
    context, began = pair.contexts[0], pair.loop.now_ns
    found = {qp.qp_num: [] for qp in ends[0].qps}
    for _ in range(7):
        for wc in ends[0].cq.wait(1):
            found[wc.qp_num].append((wc.wr_id, wc.status))
    assert pair.loop.now_ns - began < 2 * SILENCE_NS
    flushed = WCStatus.WR_FLUSH_ERR
    first, second = found.values()
    assert sorted(first) == [(0, WCStatus.FATAL_ERR), (2, flushed), (4, flushed), (99, flushed)]
    assert second == [(1, WCStatus.FATAL_ERR), (3, flushed), (5, flushed)]
    assert all(qp.qp_state is QPState.ERR for qp in ends[0].qps)
    event = context.get_async_event(0)
    reason = REASONS[how]
    assert (event.event_type, event.element, event.reason) == (EventType.DEVICE_FATAL, context, reason)
    assert not context.async_events, "reported once"
    for wait in (ends[0].cq.wait, context.get_async_event, lambda: MR(ends[0].pd, 4_096, 0), context.statistics,
                 lambda: context.commands.call(CommandOpcode.QP_QUERY, qpn=2)):
        with pytest.raises(DeviceFatal, match=reason):
            wait()
    post(ends, 1)
    assert ends[0].cq.poll(1)[1][0].status is flushed
    touched = card.touched
    context.serve(5 * SILENCE_NS)
    assert card.touched == touched, "a card that failed is left alone"
    assert context.knitting.check()["free"] == context.knitting.total_blocks


@HOW
def test_nothing_is_left_on_the_host(how):
    pair, ends, _ = failing(how)
    ends[0].cq.wait(1)
    ends[0].qps[0].close()
    ends[0].mr.close()
    assert pair.contexts[0].pte_ranges.free_total == pair.contexts[0].capabilities.max_pte
    pair.contexts[0].close()
    assert not pair.devices[0].memory._pages, "memory was not given back"
    pair.contexts[1].close()


@HOW
def test_close_does_not_wait_for_a_failed_card(how):
    """The driver has not detected the failure yet."""
    pair, _, _ = failing(how)
    began = pair.loop.now_ns
    pair.contexts[0].close()
    assert pair.loop.now_ns - began < 3 * SILENCE_NS
    assert not pair.devices[0].memory._pages


@HOW
@pytest.mark.parametrize("subject", ["qp", "mr", "modify"])
def test_close_during_a_card_failure_completes(how, subject):
    """The call itself detects the failure. The card accesses nothing any more, so the call need not wait for it."""
    pair, ends, _ = failing(how)
    qp, mr = ends[0].qps[0], ends[0].mr
    if subject == "modify":
        with pytest.raises(DeviceFatal, match=REASONS[how]):
            qp.modify(QPAttr(qp_access_flags=AccessFlag(0)), QPAttrMask.ACCESS_FLAGS)
    (mr if subject == "mr" else qp).close()
    assert (mr if subject == "mr" else qp).closed
    assert pair.contexts[0].get_async_event(0).reason == REASONS[how]
    assert (pair.contexts[0].pte_ranges.free_total == pair.contexts[0].capabilities.max_pte) == (subject == "mr")
    pair.contexts[0].close()


@HOW
def test_pending_command_ends(how):
    pair, ends, _ = failing(how)
    began = pair.loop.now_ns
    with pytest.raises(DeviceFatal):
        MR(ends[0].pd, 4_096, 0)
    assert pair.loop.now_ns - began < 2 * SILENCE_NS
    assert pair.contexts[0].get_async_event(0).event_type is EventType.DEVICE_FATAL


@pytest.mark.parametrize("how", ["reset", "without memory"])
def test_reset_recovers_the_card(how):
    pair, ends, _ = failing(how)
    while ends[0].qps[0].qp_state is QPState.RTS:
        pair.contexts[0].serve(SILENCE_NS)
    ends[0].cq.take(100)
    pair.contexts[0].reset()
    for end in ends:
        for qp in end.qps:
            qp.reset()
    for end, peer in (ends, ends[::-1]):
        end.connect(peer.connections)
    ends[0].mr.write(bytes(range(256)) * (LENGTH // 256))
    transfer(pair, ends)
    assert ends[1].mr.read(LENGTH, 0) == ends[0].mr.read(LENGTH, 0)


def test_removed_card_cannot_be_reset():
    pair, ends, _ = failing("gone")
    with pytest.raises(DeviceFatal, match=GONE):
        pair.contexts[0].reset()
    pair.contexts[0].close()
    assert not pair.devices[0].memory._pages and ends[0].cq.closed


@HOW
def test_event_wait_reports_the_failure_without_any_qp(how):
    pair = make_pair(ContextConfig(silence_ns=SILENCE_NS), seed=5)
    context, began = pair.contexts[0], pair.loop.now_ns
    FailingCard(pair.devices[0], how)
    event = context.get_async_event(3 * SILENCE_NS)
    assert (event.event_type, event.reason) == (EventType.DEVICE_FATAL, REASONS[how])
    assert pair.loop.now_ns - began < 2 * SILENCE_NS
