"""Time from a mark at the receiver until the sender reacts to its notification, on timed cards and on the gateware.

A program writes without end, another one waits for it; the link marks a data packet now and then. The time begins with
the last byte of that packet at the receiver's MAC and ends when the sender's congestion control is called. The delay of
the link for the notification is subtracted.
"""

import statistics
from functools import partial

import cocotb

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import wire
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
DELAY_NS, PMTU, LINE_GBPS = 1_000, 4096, 100
INTERVAL_NS, APART_NS = 5_000, 15_000     # of notifications; between marked packets
LENGTH = {"timed": 2 << 20, "rtl": 1 << 20}
CABLE = LinkConfig(delay_ns=DELAY_NS)
CONFIG = ContextConfig(congestion="dcqcn", ring_log2=8, cnp_interval_ns=INTERVAL_NS)


class Watch:
    """Marks packets on the link to host B, and takes the time until host A reacts."""

    def __init__(self, pair, sender):
        self.pair, self.due, self.seen, self.found = pair, 0.0, None, []
        link, react = pair.link("a_to_b"), sender.on_cnp
        self._deliver, link.deliver = link.deliver, self._arrive
        sender.on_cnp = lambda now: (self._reacted(), react(now))

    def _arrive(self, frame):
        now, frame = self.pair.now_ns(), bytes(frame)
        if frame[wire.BTH_OFFSET] in wire.DATA_OPCODES and now >= self.due:
            self.due, self.seen = now + APART_NS, now + wire.line_bytes(len(frame)) * 8 / LINE_GBPS
            frame = marked(frame)
        self._deliver(frame)

    def _reacted(self):
        if self.seen is not None:
            self.found.append(self.pair.now_ns() - self.seen - DELAY_NS)
            self.seen = None


async def reactions(pair, length):
    """Return the reaction times of a transfer between the cards of a started pair, in nanoseconds."""
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
    """Return the reaction times on timed cards."""
    pair = LoopPair(TimedDevice, CONFIG, seed=1, watched=False, forward=CABLE, backward=CABLE, preset="test",
                    host=HostConfig())
    return complete(reactions(pair, LENGTH["timed"]))


@cocotb.test()
async def on_gateware(dut):
    """Leave the reaction times of the gateware."""
    pair = RtlPair(dut, EnvConfig(CABLE, CABLE, HostConfig()), CONFIG, seed=bench_seed(), guarded=False, judged=False)
    await pair.start()
    found = await reactions(pair, int(given()["length"]))
    pair.env.finish()
    leave(found)


PARTS = (("", "timed cards", on_timed_cards), ("_rtl", "gateware", partial(
    run_cards, preset("test"), __file__, {"length": str(LENGTH["rtl"])}, seed=1)))


def rows():
    """Return the median on each kind of cards."""
    found = [(name, cards, run()) for name, cards, run in PARTS]
    return [Row(f"network_reaction{name}_us", "µs", statistics.median(times) / 1e3, at_most=MOST_US,
                conditions=f"{cards}, dcqcn; from a marked packet at the receiver to the sender's control, without the "
                           f"way; median of {len(times)}, the longest {max(times) / 1e3:.2f}")
            for name, cards, times in found]
