"""Marks of switches on two RTL cards: counts, reports and notifications, with losses, and forged notifications."""

import random

import cocotb

from weft.hdl.contract import wire
from weft.hdl.contract.abi import Reason
from weft.model.fabric.frame.header import can_be_marked, marked
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.hostile.fuzzed_frames import IP_AT, edit, seal
from weft.tb.test import decoder
from weft.tb.test.cards.crossing_cases import LOSSY, Case, Crossing

INTERVAL_NS = 5_000
UNKNOWN_PEER = 0x0B0B0B0B


class Marking:
    """Marks half of the data packets on both links, and sends forged notifications to host A."""

    def __init__(self, crossing):
        self.crossing, self.rng = crossing, random.Random(bench_seed())
        self.marks, self.cnps, self.seen, self.forged = {"a": 0, "b": 0}, {"a": [], "b": []}, [], 0
        for side, direction in (("b", "a_to_b"), ("a", "b_to_a")):
            impairments = crossing.pair.env.link(direction).impairments
            impairments.released = lambda arriving, take=impairments.released, side=side: self._pass(
                side, take(arriving))
        for qp in crossing.endpoints["a"].qps:
            react = qp.sender.on_cnp
            qp.sender.on_cnp = lambda now, react=react: (self.seen.append(now), react(now))

    def _pass(self, side, frame):
        """Mark a frame on its way to a side; a notification to host A is preceded by forged ones."""
        if frame is None or not decoder.is_roce(frame := bytes(frame)):
            return frame
        opcode = frame[wire.BTH_OFFSET]
        if opcode == wire.Opcode.CNP:
            packet = decoder.decode(frame)
            assert packet.tos == wire.CONTROL_DSCP << 2 and not packet.migreq
            self.cnps[side].append((self.crossing.pair.now_ns(), packet.dest_qp))
            if side == "a":
                receive, board = self.crossing.pair.env.sides["a"].mac_rx.receive, self.crossing.pair.scoreboards["a"]
                board.forbidden.discard(Reason.STALE_GENERATION)
                for wrong in (seal(edit(frame, wire.IPV4, IP_AT, src=UNKNOWN_PEER)),
                              frame[:-1] + bytes([frame[-1] ^ 1 << self.rng.randrange(8)]),
                              seal(edit(frame, wire.BTH, wire.BTH_OFFSET, dest_qp=packet.dest_qp ^ 1 << 23))):
                    receive(wrong)
                    self.forged += 1
                board.refused[Reason.BAD_ICRC] += 1
        elif opcode in wire.DATA_OPCODES:
            assert can_be_marked(frame)
            if self.rng.random() < 0.5:
                self.marks[side] += 1
                return marked(frame)
        return frame


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def marks(dut):
    """Both cards report marks; each notification takes effect at the peer, and forged ones have none."""
    messages = [9_000] * 8
    case = Case({"a": messages, "b": messages}, qps=2, there=LOSSY, back=LOSSY,
                driver={"congestion": "dcqcn", "ring_log2": 6, "cnp_interval_ns": INTERVAL_NS})
    found = []
    crossing = Crossing(dut, case, lambda crossing: found.append(Marking(crossing)))
    await crossing.run()
    marking, contexts = found[0], crossing.pair.contexts
    for side, peer in (("a", "b"), ("b", "a")):
        counters, board = crossing.counters[side], crossing.pair.scoreboards[side]
        dropped = counters["drop_stale_psn"] + counters["drop_duplicate"]
        assert marking.marks[side] - dropped <= counters["rx_marked"] <= marking.marks[side]
        assert board.seen["MARKED"] == contexts[side].counts["CNP"]
        assert contexts[side].counts["CNP"] >= contexts[peer].counts["cnps_received"] == len(marking.cnps[peer]) > 4
        for qpn in {qpn for _, qpn in marking.cnps[peer]}:
            times = [at for at, to in marking.cnps[peer] if to == qpn]
            assert len(times) - 2 <= (times[-1] - times[0]) / INTERVAL_NS, "each may be late, not all of them"
    assert len(marking.seen) == len(marking.cnps["a"])
    drops = crossing.counters["a"]
    assert marking.forged == 3 * len(marking.cnps["a"])
    assert drops["drop_wrong_peer"] == drops["drop_bad_icrc"] == len(marking.cnps["a"])
    assert drops["drop_stale_generation"] + drops["drop_unknown_qp"] == len(marking.cnps["a"])
    dut._log.info("%s marks, %s notifications", marking.marks, {side: len(of) for side, of in marking.cnps.items()})
