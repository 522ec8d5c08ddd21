"""Paced QPs on two RTL cards: transfers in both directions with losses, by the pacer of each card."""

import cocotb

from weft.tb.test.cards.crossing_cases import LOSSY, Case, Crossing

MESSAGES, QPS = [9_000] * 8, 2


class Watch:
    """Counts the reports PACED of both drivers, new data and retransmissions."""

    def __init__(self, crossing):
        self.ended = {side: [0, 0] for side in "ab"}
        for side, endpoint in crossing.endpoints.items():
            assert crossing.pair.contexts[side].engine.paced.size == 16
            for qp in endpoint.qps:
                assert qp.sender.paced
                report = qp.sender.on_paced
                qp.sender.on_paced = lambda psn, again, *times, report=report, side=side: self._count(
                    side, again, report(psn, again, *times))

    def _count(self, side, again, count):
        self.ended[side][again] += count
        return count


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def paced_qps(dut):
    """Every descriptor ends once, retransmissions included, and the pool is empty in the end."""
    watches = []
    case = Case({"a": MESSAGES, "b": MESSAGES}, qps=QPS, there=LOSSY, back=LOSSY,
                driver={"congestion": "swift", "ring_log2": 6})
    crossing = Crossing(dut, case, lambda crossing: watches.append(Watch(crossing)))
    await crossing.run()
    [watch] = watches
    for side, (new, again) in watch.ended.items():
        assert new >= len(MESSAGES) and again > 0
        assert not crossing.pair.contexts[side].engine.paced.used
    dut._log.info("descriptors, new and again: %s", watch.ended)
