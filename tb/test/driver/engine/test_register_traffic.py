"""Register accesses of a driver on functional cards: number per message, and no wait below the minimum."""

from collections import Counter

import pytest

from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair, transfer
from weft.tb.verify.bench.register_traffic import RegisterTraffic

LENGTH = 1 << 20
MESSAGE_BYTES = 64 << 10


@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("qps", [1, 12])
def test_a_short_round_trip_does_not_keep_the_bus_busy(qps, loss):
    """Descriptors wait in the card for longer than the probe time-out; the driver does not poll all the time."""
    config = ContextConfig(probe_timeout_ns=26_000, ring_log2=8, max_extents=2)
    pair = make_pair(config, forward=LinkConfig(delay_ns=1_000, loss=loss), backward=LinkConfig(delay_ns=1_000), seed=1)
    ends = make_endpoints(pair, LENGTH, qps=qps, path_mtu=MTU.MTU_4096)
    traffic = [RegisterTraffic(device) for device in pair.devices]
    sent, _ = transfer(pair, ends, message_bytes=MESSAGE_BYTES)
    if not loss:
        assert sent["nanoseconds"] < 1.1 * 8 * LENGTH / 100, "slower than the line"
    for side in traffic:
        assert min(timeout for _, timeout, _ in side.waits) >= side.device.shortest_wait_ns
        assert not side.reads, "a register read stalls its thread"
    assert sum(side.total for side in traffic) / sent["messages"] <= 4, [side.writes for side in traffic]
    close_and_check(pair, ends)


@pytest.mark.parametrize(("qps", "window"), [(12, 1), (12, 2), (1, 16)])
def test_large_messages_at_line_rate_cost_few_register_accesses(qps, window):
    """Every message is acknowledged separately, and then replaced by the next one."""
    length = max(60, 5 * qps) * MESSAGE_BYTES
    pair = make_pair(ContextConfig(ring_log2=8), forward=LinkConfig(delay_ns=0), seed=1)
    ends = make_endpoints(pair, length, qps=qps, path_mtu=MTU.MTU_4096, window=window)
    traffic = [RegisterTraffic(device) for device in pair.devices]
    sent, _ = transfer(pair, ends, message_bytes=MESSAGE_BYTES)
    assert 8 * length / sent["nanoseconds"] > 97, "a doorbell that waits costs nothing"
    assert sum(side.total for side in traffic) / sent["messages"] <= 3.3, [side.writes for side in traffic]


@pytest.mark.parametrize("window", [16, 200])
def test_small_messages_share_their_register_accesses(window):
    """Messages go both ways at the same time."""
    total, length = 1_000, 64
    pair = make_pair(ContextConfig(ring_log2=8), seed=1)
    ends = make_endpoints(pair, 2 * total * length, window=window)
    traffic, finished = [RegisterTraffic(device) for device in pair.devices], []

    def exchange(side):
        me, peer = ends[side], ends[1 - side]

        def run():
            qp, posted, done = me.qps[0], 0, 0
            while done < total:
                while posted < total and posted - done < window:
                    at = posted * length
                    wr = SendWR(wr_id=posted, sg=[SGE(me.mr.buf + at, length, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE)
                    wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf + total * length + at)
                    qp.post_send(wr)
                    posted += 1
                for wc in me.cq.wait(16, 10**7):
                    assert wc.status is WCStatus.SUCCESS
                    done += 1
            finished.append(side)
            while len(finished) < 2:
                me.context.progress()
                me.context.wait(50_000)
        return run

    pair.run(exchange(0), exchange(1))
    assert sum(side.total for side in traffic) / (2 * total) <= 1, [side.writes for side in traffic]
    close_and_check(pair, ends)


def test_idle_driver_accesses_no_registers():
    pair = make_pair(ContextConfig(ring_log2=8))
    traffic, context = RegisterTraffic(pair.devices[0]), pair.contexts[0]
    with pytest.raises(TimeoutError):
        context.run_until(lambda: False, 100_000_000)
    assert len(traffic.waits) == 1
    for timeout_ns in (1, 100, 2_000, 50_000) * 100:
        context.progress()
        context.wait(timeout_ns)
    assert traffic.total <= 3, "the interrupt of each ring is armed once"
    assert min(timeout for _, timeout, _ in traffic.waits) == pair.devices[0].shortest_wait_ns


def test_interrupt_taken_by_another_wait_is_armed_again():
    """A report comes during the wait for a command; the next wait for reports ends at once."""
    pair = make_pair(ContextConfig(ring_log2=8), forward=LinkConfig(delay_ns=0))
    ends = make_endpoints(pair, 4_096)
    context, device = pair.contexts[1], pair.devices[1]
    context.progress()
    context.wait(10_000)                # all interrupts are armed
    qp, end = ends[0].qps[0], ends[0]
    wr = SendWR(sg=[SGE(end.mr.buf, 64, end.mr.lkey)], opcode=WROpcode.RDMA_WRITE)
    wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
    qp.post_send(wr)
    pair.contexts[0].progress()
    while not device.wait(1_000):       # a wait for another ring consumes the interrupt
        pass
    began = device.now_ns()
    assert context.wait(10**9) and device.now_ns() - began < 10_000
    reports = Counter(context.engine.reports.counts)
    context.progress()
    assert context.engine.reports.counts["MESSAGE_END"] == reports["MESSAGE_END"] + 1
