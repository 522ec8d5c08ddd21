"""Flow control between two cards: a receiver with a slow host drops nothing, and no peer stops a card for long.

Card A writes to card B over 100 m of fibre, faster than B's host accepts; or both write, over the longest fibre, and
both hosts repeatedly accept nothing for a while.
"""

import random
from itertools import count

import cocotb
from cocotb.triggers import Timer

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import MTU, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import wire
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.link.mac import wire_ps
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import PEER, SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig, TwoCards
from weft.tb.test.pause_frame import pause_frame

CABLE_NS, CABLE_TWO_CLOCKS_NS = 500, 450        # 100 m and 90 m
LENGTH, MESSAGE, QPS, WINDOW = 384 << 10, 8 << 10, 2, 8
HELD = 0.4                  # part of the cycles in which B's host takes no request: 80 % would suffice for line rate
STANDS, GOES = 1_000, 2_000     # cycles in which a host takes nothing, and then everything
PRIORITY, SILENCE_NS, SERVICE_NS = 3, 1_000_000, 1_000
FORGER_MAC = 0x02_00_00_00_00_0C
STORM_NS = 500              # between pauses of a malicious peer


def evenly(part):
    """Return an endless pattern that is true in a part of all cycles."""
    return (int((n + 1) * part) > int(n * part) for n in count())


def in_turns(stands, goes):
    """Return an endless pattern: true ``stands`` times, then false ``goes`` times."""
    return (n % (stands + goes) < stands for n in count())


def whole_ns(pmtu):
    """Return the delay that simulated MACs add to a cable: each passes a frame on when it is complete."""
    return wire_ps(wire.DATA_HEADER_BYTES + wire.PMTUS[pmtu] + wire.ICRC_BYTES) / 1000


def mac_control(frame):
    return wire.ETH.unpack(frame).ethertype == wire.ETHERTYPE_MAC_CONTROL


def pause(quanta, **others):
    """Return a frame of a peer that requests a pause of the cards' priority."""
    return pause_frame({PRIORITY: quanta}, src=FORGER_MAC, **others)


class PausedPair:
    """Two cards, transfers between them, and the resulting counts.

    Parameters
    ----------
    dut
    priority : int or None
        ``pfc_priority`` of both.
    held : callable, optional
        Returns a pattern of the cycles in which the host of a receiver takes nothing.
    senders : tuple of side
    pmtu : MTU
    ignores_pauses : bool
        Pause frames are lost.

    Attributes
    ----------
    counters : dict of side
        The cards' counters.
    pauses : dict of side
        MAC control frames that a card sent.
    raw : list of bytes
        Frames that reached the hosts' software.
    """

    def __init__(self, dut, priority, held=None, senders=("a",), pmtu=MTU.MTU_1024, ignores_pauses=False):
        config = ContextConfig(ring_log2=8, probe_timeout_ns=25_000, pfc_priority=priority)
        two_clocks = TwoCards(dut).two_clocks
        cable = LinkConfig(delay_ns=(CABLE_TWO_CLOCKS_NS if two_clocks else CABLE_NS) - whole_ns(pmtu))
        self.pair = RtlPair(dut, EnvConfig(a_to_b=cable, b_to_a=cable), config, seed=bench_seed(), judged=False)
        self.held, self.counters, self.pauses, self.raw = held, {}, {side: [] for side in SIDES}, []
        self.senders, self.pmtu, self.ignores_pauses, self.ends, self.done = senders, pmtu, ignores_pauses, {}, set()
        self.rng = random.Random(bench_seed())

    async def run(self, meanwhile=None):
        """Run the transfers; ``meanwhile(pair)`` runs concurrently."""
        pair = self.pair
        await pair.start()
        contexts, env = pair.contexts, pair.env
        for side in SIDES:
            contexts[side].raw_frame_handlers.append(lambda frame, _entry: self.raw.append(frame))
            env.link(f"{side}_to_{PEER[side]}").impairments.drop_when(
                lambda frame, _kind, side=side: mac_control(frame) and self._pause_sent(side, frame))
        for side in SIDES:
            self.ends[side] = await pair.call(Endpoint, contexts[side], 2 * LENGTH, qps=QPS, window=WINDOW)
        await pair.connect(self.ends, path_mtu=self.pmtu)
        self._hold(self.held)
        beside = cocotb.start_soon(meanwhile(pair)) if meanwhile else None
        await pair.each(self._write)
        self._hold(None)
        if beside:
            beside.cancel()
        for sender in self.senders:
            found = self.ends[PEER[sender]].mr.read(LENGTH, LENGTH)
            assert found == self.ends[sender].mr.read(LENGTH, 0), f"the bytes received from {sender} differ"
        self.counters, _, complaints = await pair.close()
        assert not complaints, complaints
        assert not any(map(mac_control, self.raw)), "a MAC control frame reached the host"

    def _pause_sent(self, side, frame):
        self.pauses[side].append(frame)
        return self.ignores_pauses

    def _hold(self, pattern):
        """Let the receivers' hosts take nothing in the cycles of a pattern, or always take everything if it is None."""
        for sender in self.senders:
            self.pair.env.sides[PEER[sender]].hard_block.rq_sink.pause_by(pattern() if pattern else None)

    def _write(self, side):
        """Run a side in its thread: a sender writes, then both serve until all is done."""
        end, offer, context = self.ends[side], self.ends[PEER[side]].offer, self.pair.contexts[side]
        end.mr.write(self.rng.randbytes(LENGTH))
        messages = iter(range(0, LENGTH, MESSAGE) if side in self.senders else ())
        open_requests = 0

        def post(qp):
            nonlocal open_requests
            if (at := next(messages, None)) is not None:
                wr = SendWR(wr_id=at, sg=[SGE(end.mr.buf + at, MESSAGE, end.mr.lkey)], opcode=WROpcode.RDMA_WRITE,
                            send_flags=SendFlags.SIGNALED)
                wr.set_wr_rdma(offer.rkey, offer.va + LENGTH + at)
                qp.post_send(wr)
                open_requests += 1

        by_number = {qp.qp_num: qp for qp in end.qps}
        for qp in end.qps * WINDOW:
            post(qp)
        while open_requests:
            for wc in end.cq.wait(16, SILENCE_NS):
                assert wc.status is WCStatus.SUCCESS, wc
                open_requests -= 1
                post(by_number[wc.qp_num])
        self.done.add(side)
        while self.done < set(SIDES):
            context.progress()
            context.wait(SERVICE_NS)
        context.progress()


@cocotb.test()
async def frames_are_dropped_without_pauses(dut):
    """Without flow control packets are dropped."""
    run = PausedPair(dut, None, lambda: evenly(HELD))
    await run.run()
    assert run.counters["b"]["drop_buffer_full"] > 0
    assert not run.pauses["a"] and not run.pauses["b"]


@cocotb.test()
async def nothing_is_dropped(dut):
    """With flow control no packet is dropped: B requests pauses, A pauses and continues."""
    run = PausedPair(dut, PRIORITY, lambda: evenly(HELD))
    await run.run()
    a, b = run.counters["a"], run.counters["b"]
    assert b["drop_buffer_full"] == b["holes"] == a["tx_retransmissions"] == 0
    assert b["tx_pauses"] > 2 and a["pause_cycles"] > 100, (b["tx_pauses"], a["pause_cycles"])
    assert a["rx_pauses"] == len(run.pauses["b"]) >= 2 * b["tx_pauses"] - 1
    assert not a["pause_storms"] and not a["drop_bad_pause"]


@cocotb.test()
async def nothing_is_dropped_in_both_directions(dut):
    """With the longest frames and cable, frames that arrive after a host stops find space.

    That holds although a paused card has to request pauses, too.
    """
    run = PausedPair(dut, PRIORITY, lambda: in_turns(STANDS, GOES), senders=SIDES, pmtu=MTU.MTU_4096)
    await run.run()
    for side in SIDES:
        counted = run.counters[side]
        shown = {name: counted[name] for name in (
            "tx_pauses", "rx_pauses", "pause_cycles", "pause_storms", "drop_buffer_full", "holes",
            "tx_retransmissions", "drop_bad_pause")}
        dut._log.info(f"{side}: {shown}")
        assert counted["tx_pauses"] >= 2 and counted["pause_cycles"] > 100
        assert not any(counted[name] for name in (
            "drop_buffer_full", "holes", "tx_retransmissions", "pause_storms", "drop_bad_pause"))


@cocotb.test()
async def peer_that_ignores_pauses_does_no_harm(dut):
    """Pause frames are lost: packets are dropped as without flow control, in runs, and retransmitted."""
    run = PausedPair(dut, PRIORITY, lambda: evenly(HELD), ignores_pauses=True)
    await run.run()
    a, b = run.counters["a"], run.counters["b"]
    assert b["tx_pauses"] and not a["rx_pauses"] and not a["pause_cycles"]
    dut._log.info(f"{b['drop_buffer_full']} dropped, {b['holes']} holes, {b['nodes_sealed']} nodes")
    assert b["drop_buffer_full"] and b["holes"] >= 2 * b["nodes_sealed"]
    assert a["tx_retransmissions"] < LENGTH // 1024


@cocotb.test()
async def forged_pauses_do_not_stop_the_card(dut):
    """A peer requests the longest pause again and again: the transfer ends nevertheless."""
    async def lie(pair):
        while True:
            pair.env.sides["a"].mac_rx.receive(pause(0xFFFF))
            await Timer(STORM_NS, "ns")

    run = PausedPair(dut, PRIORITY)
    await run.run(lie)
    assert run.counters["a"]["pause_storms"] > 0 and run.counters["a"]["pause_cycles"] > 1000


@cocotb.test()
async def invalid_pauses_are_ignored(dut):
    """Malformed pause frames, and those for other receivers, have no effect."""
    sent = []

    async def lie(pair):
        frame = pause(0xFFFF)
        while True:
            for bad in (pause(0xFFFF, dst=0x02_00_00_00_00_0A), frame[:59], frame + bytes(40),
                        frame[:15] + b"\x02" + frame[16:]):
                pair.env.sides["a"].mac_rx.receive(bad)
                sent.append(bad)
            await Timer(STORM_NS, "ns")

    run = PausedPair(dut, PRIORITY)
    await run.run(lie)
    a = run.counters["a"]
    assert 0 < a["drop_bad_pause"] <= len(sent) and not a["pause_cycles"] and not a["rx_pauses"]
