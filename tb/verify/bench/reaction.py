"""Time from a mark at the receiver until the sender's packets have the new rate, on timed cards and on the gateware.

A program writes without end, another one waits for it; the sender's card paces the packets. The link marks one of them
now and then. The time begins with its last byte at the receiver's MAC and ends at the sender's MAC, with the first
packet whose distance to the one before is that of the new rate. The delay of the link for the notification is
subtracted.
"""

import statistics
from functools import partial
from typing import NamedTuple

import cocotb

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.model.card.host import TimedDevice
from weft.model.fabric.frame.header import marked
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.loop_pair import LoopPair, complete
from weft.tb.sim.pair.pair import serve_until
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig

MOST_US = 3.1
DELAY_NS, PMTU, LINE_GBPS = 1_000, 1024, 100
RATE_GBPS = 50                            # before a notification; half of it afterwards
INTERVAL_NS, APART_NS = 5_000, 15_000     # of notifications; between a reaction and the next marked packet
TOGETHER = 4                              # packets in a row that show a rate
LENGTH = {"timed": 2 << 20, "rtl": 1 << 20}
CABLE = LinkConfig(delay_ns=DELAY_NS)
CONFIG = ContextConfig(congestion="dcqcn", ring_log2=8, cnp_interval_ns=INTERVAL_NS)
PRESET = "test"


class Reaction(NamedTuple):
    """Times in nanoseconds from a marked packet, without the way of its notification.

    ``control``: until the control of the sender is called; ``packet``: until the first packet at the new rate.
    """

    control: float
    packet: float


class Watch:
    """Marks packets on the link to host B, and takes the times until host A reacts.

    The rate of the sender is ``RATE_GBPS`` again after each reaction. The pacer alone spaces its packets: the window of
    ``dcqcn`` is lifted, which would hold back some of them before and after the notification.

    Attributes
    ----------
    found : list of Reaction
    """

    def __init__(self, pair, sender):
        self.pair, self.due, self.found = pair, 0.0, []
        self._flow, self._seen, self._left = sender.flow, None, []      # (time, ns at the old, at the new rate)
        self._control = self._gaps = None
        link, self._react = pair.link("a_to_b"), sender.on_cnp
        self._deliver, link.deliver = link.deliver, self._arrive
        sender.on_cnp = self._reacted

    def _arrive(self, frame):
        now, frame = self.pair.now_ns(), bytes(frame)
        if frame[wire.BTH_OFFSET] in wire.DATA_OPCODES:
            if self._gaps is not None:
                self._look(now - DELAY_NS, wire.line_bytes(len(frame)))
            elif self._seen is None and now >= self.due and self._is_steady(now):
                self._seen = now + wire.line_bytes(len(frame)) * 8 / LINE_GBPS
                frame = marked(frame)
        self._deliver(frame)

    def _is_steady(self, now):
        """Return true if the sender has had its rate for some time; set that rate otherwise."""
        flow = self._flow
        if flow.rtt_ns is None:
            return False        # the first one replaces the algorithm
        flow.ect = False        # of the window alone: the headers keep it
        control = flow.algorithm
        if control.rate == RATE_GBPS * 1e9:
            return True
        control.rate = control.target = RATE_GBPS * 1e9
        control.alpha, self.due = 1.0, now + APART_NS
        return False

    def _reacted(self, now):
        before = self._flow.gap
        self._react(now)
        if self._seen is not None and self._gaps is None:
            self._control = self.pair.now_ns() - self._seen - DELAY_NS
            self._gaps = [gap / (1 << abi.PACE_SCALE) for gap in (before, self._flow.gap)]

    def _look(self, left, length):
        """Note a packet that left; a reaction ends at the first of ``TOGETHER`` packets that keep the new distance."""
        self._left.append((left, *(length * gap for gap in self._gaps)))
        recent = self._left[-TOGETHER - 1:]
        if len(recent) > TOGETHER and _is_new(recent[:2]) and _is_new(recent):
            self.found.append(Reaction(self._control, recent[1][0] - self._seen - DELAY_NS))
            self._left.clear()
            self._seen = self._gaps = None


def _is_new(packets):
    """Return true if the time between the first and the last packet is closer to that of the new rate."""
    lasted = packets[-1][0] - packets[0][0]
    old, new = (sum(packet[k] for packet in packets[:-1]) for k in (1, 2))
    return abs(lasted - new) < abs(lasted - old)


async def reactions(pair, length):
    """Return the :class:`Reaction` of each notification in a transfer between the cards of a started pair."""
    a, b = [await pair.call(Endpoint, pair.contexts[side], length) for side in pair.sides]
    for end, peer in ((a, b), (b, a)):
        await pair.call(end.connect, peer.connections, path_mtu=MTU[f"MTU_{PMTU}"])
    await pair.call(post_receives, b)
    watch, sent = Watch(pair, a.qps[0].sender), []

    def send():
        send_file(a, b.offer, timeout_ns=10_000_000)
        sent.append(True)

    def take():
        receive_file(b)
        serve_until(lambda: sent, b.context, 50_000)

    await pair.gather(send, take)
    for end in (a, b):
        await pair.call(end.close)
    return watch.found


def on_timed_cards():
    """Return the reactions of timed cards."""
    pair = LoopPair(TimedDevice, CONFIG, seed=1, watched=False, forward=CABLE, backward=CABLE, preset=PRESET,
                    host=HostConfig())
    return complete(reactions(pair, LENGTH["timed"]))


@cocotb.test()
async def on_gateware(dut):
    """Leave the reactions of the gateware."""
    pair = RtlPair(dut, EnvConfig(CABLE, CABLE, HostConfig()), CONFIG, card=PRESET, seed=bench_seed(), guarded=False,
                   judged=False)
    await pair.start()
    found = await reactions(pair, int(given()["length"]))
    pair.env.finish()
    leave(found)


PARTS = (("", "timed cards", on_timed_cards), ("_rtl", "gateware", partial(
    run_cards, preset(PRESET), __file__, {"length": str(LENGTH["rtl"])}, seed=1)))


def rows():
    """Return the median on each kind of cards."""
    return [_row(name, cards, [Reaction(*times) for times in run()]) for name, cards, run in PARTS]


def _row(name, cards, found):
    assert all(times.packet > times.control for times in found), "the packets had the new distance before"
    control, packet = ([times[k] / 1e3 for times in found] for k in range(2))
    return Row(f"network_reaction{name}_us", "µs", statistics.median(packet), at_most=MOST_US,
               conditions=f"{cards} with a pacer, dcqcn, PMTU {PMTU}, from {RATE_GBPS} to {RATE_GBPS / 2:g} Gb/s; from "
                          "a marked packet at the receiver to the first packet at the new rate, without the way; "
                          f"median of {len(found)}, the longest {max(packet):.2f}; to the sender's control "
                          f"{statistics.median(control):.2f}")
