"""Flow control between two cards: with it a receiver whose host is slow loses nothing, and no peer holds it for long.

Card A writes to card B over 100 m of fibre, faster than B's host takes it.
"""

import os
from itertools import count

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.hdl import wire
from weft.tb.cards.open_pair import OpenPair
from weft.tb.flow.simulate import bench_seed
from weft.tb.world.link import LinkConfig
from weft.tb.world.sides import PEER, SIDES
from weft.tb.world.two_hosts import EnvConfig

CABLE = LinkConfig(delay_ns=500)
LENGTH, MESSAGE, QPS, WINDOW = 384 << 10, 8 << 10, 2, 8
HELD = 0.4                  # of the cycles B's host takes nothing of the card's requests: 80 % would do for the line
PRIORITY, SILENCE_NS = 3, 1_000_000
STORM_NS = 500              # between a lying peer's pauses


def evenly(part):
    """An endless pattern that is true in a part of all cycles."""
    return (int((n + 1) * part) > int(n * part) for n in count())


def mac_control(frame):
    return wire.ETH.unpack(frame).ethertype == wire.ETHERTYPE_MAC_CONTROL


def pause_frame(quanta, **eth):
    """What a peer sends that asks for a pause of the cards' priority."""
    header = {"dst": wire.MAC_CONTROL_ADDRESS, "src": 0x02_00_00_00_00_0C, "ethertype": wire.ETHERTYPE_MAC_CONTROL}
    return (wire.ETH.pack(**header | eth) + wire.PFC.pack(
        opcode=wire.MacControl.PFC, classes=1 << PRIORITY, **{f"time{PRIORITY}": quanta})).ljust(
            wire.MIN_FRAME_BYTES, b"\0")


class PausedPair:
    """Two cards, a transfer from A to B, and what happened to it.

    Parameters
    ----------
    dut
    priority : int or None
        ``pfc_priority`` of both.
    held : float
        Part of the cycles in which B's host takes nothing.

    Attributes
    ----------
    counters : dict of side
        What the cards counted.
    pauses : dict of side
        MAC control frames that a card sent.
    raw : list of bytes
        Frames that reached the hosts' software.
    """

    def __init__(self, dut, priority, held=0.0):
        config = ContextConfig(ring_log2=8, probe_timeout_ns=25_000, pfc_priority=priority)
        self.pair = OpenPair(dut, EnvConfig(a_to_b=CABLE, b_to_a=CABLE), config, seed=bench_seed())
        self.held, self.counters, self.pauses, self.raw = held, {}, {side: [] for side in SIDES}, []

    async def run(self, meanwhile=None):
        """Move the bytes; ``meanwhile(pair)`` goes on beside it."""
        pair = self.pair
        await pair.start()
        contexts, env = pair.contexts, pair.env
        for side in SIDES:
            contexts[side].raw_frame_handlers.append(lambda frame, _entry: self.raw.append(frame))
            env.link(f"{side}_to_{PEER[side]}").impairments.drop_when(
                lambda frame, _kind, side=side: mac_control(frame) and bool(self.pauses[side].append(frame)))
        ends = {side: await bridge(Endpoint)(contexts[side], LENGTH, qps=QPS, window=WINDOW) for side in SIDES}
        for side in SIDES:
            await bridge(ends[side].connect)(ends[PEER[side]].connections, path_mtu=MTU.MTU_1024)
        data = os.urandom(LENGTH)
        ends["a"].mr.write(data)
        await bridge(post_receives)(ends["b"])
        sink = env.sides["b"].hard_block.rq_sink
        sink.pause_by(evenly(self.held) if self.held else None)
        beside = cocotb.start_soon(meanwhile(pair)) if meanwhile else None
        await gather(
            bridge(lambda: send_file(ends["a"], ends["b"].offer, message_bytes=MESSAGE, timeout_ns=SILENCE_NS))(),
            bridge(lambda: receive_file(ends["b"], timeout_ns=SILENCE_NS))())
        sink.pause_by(None)
        if beside:
            beside.cancel()
        assert ends["b"].mr.read(LENGTH, 0) == data, "the bytes received differ"
        for side in SIDES:
            self.counters[side] = await bridge(contexts[side].statistics)()
            await bridge(ends[side].close)()
        assert not any(map(mac_control, self.raw)), "a MAC control frame reached the host"
        env.finish()


@cocotb.test()
async def drops_without(dut):
    """Without flow control packets are dropped."""
    run = PausedPair(dut, None, HELD)
    await run.run()
    assert run.counters["b"]["drop_buffer_full"] > 0
    assert not run.pauses["a"] and not run.pauses["b"]


@cocotb.test()
async def nothing_is_dropped(dut):
    """With it, none is: B asks, A pauses, and goes on."""
    run = PausedPair(dut, PRIORITY, HELD)
    await run.run()
    a, b = run.counters["a"], run.counters["b"]
    assert b["drop_buffer_full"] == b["holes"] == a["tx_retransmissions"] == 0
    assert b["tx_pauses"] > 2 and a["pause_cycles"] > 100, (b["tx_pauses"], a["pause_cycles"])
    assert a["rx_pauses"] == len(run.pauses["b"]) >= 2 * b["tx_pauses"] - 1
    assert not a["pause_storms"] and not a["drop_bad_pause"]


@cocotb.test()
async def a_liar_does_not_hold_the_card(dut):
    """Somebody asks for the longest pause again and again: the transfer ends nevertheless."""
    async def lie(pair):
        while True:
            pair.env.sides["a"].mac_rx.receive(pause_frame(0xFFFF))
            await Timer(STORM_NS, "ns")

    run = PausedPair(dut, PRIORITY)
    await run.run(lie)
    assert run.counters["a"]["pause_storms"] > 0 and run.counters["a"]["pause_cycles"] > 1000


@cocotb.test()
async def what_is_no_pause_does_nothing(dut):
    """Damaged pauses, and such for others, hold nothing back."""
    sent = []

    async def lie(pair):
        frame = pause_frame(0xFFFF)
        while True:
            for bad in (pause_frame(0xFFFF, dst=0x02_00_00_00_00_0A), frame[:59], frame + bytes(40),
                        frame[:15] + b"\x02" + frame[16:]):
                pair.env.sides["a"].mac_rx.receive(bad)
                sent.append(bad)
            await Timer(STORM_NS, "ns")

    run = PausedPair(dut, PRIORITY)
    await run.run(lie)
    a = run.counters["a"]
    assert 0 < a["drop_bad_pause"] <= len(sent) and not a["pause_cycles"] and not a["rx_pauses"]
