"""Two hosts over two equal paths of which one is cut: the time until traffic is back, and its rate."""

import itertools
import random
import zlib

from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import wire
from weft.model.card.host import TimedDevice
from weft.model.link import LinkConfig
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair

PROBE_NS, DELAY_NS = 50_000, 1_000
SPORT = slice(wire.ETH.size_bytes + wire.IPV4.size_bytes, wire.ETH.size_bytes + wire.IPV4.size_bytes + 2)
LENGTH, DEPTH = 32 << 10, 16
CARDS = {"functional": {}, "timed": {"device_type": TimedDevice, "preset": "test"}}


def path_of(end, port):
    """Return the path, 0 or 1, of the frames of a host with a UDP source port."""
    return zlib.crc32(port.to_bytes(2, "big") + b"%d" % end) >> 8 & 1


class TwoPaths(OperationPair):
    """Host A writes to host B over links of two paths without end.

    Attributes
    ----------
    cut : list of set
        Paths that are cut, for each direction.
    frames : list of list of float
        Times at which packets with data arrived at B, and frames at A.
    completions_at : list of float
        Times of the successful completions.
    errors : list of WCStatus
        The others.
    """

    def __init__(self, cards, seed, config=None, delay_ns=DELAY_NS, **attributes):
        self.cut, self.completions_at, self.errors = [set(), set()], [], []
        config = config or ContextConfig(probe_timeout_ns=PROBE_NS, ring_log2=8)
        pair = make_pair(config, seed=seed, forward=LinkConfig(delay_ns=delay_ns), **CARDS[cards])
        super().__init__(DEPTH * LENGTH, pair=pair, path_mtu=MTU.MTU_4096, **attributes)
        self.frames = [[], []]
        for end, (link, cut) in enumerate(zip(pair.links, self.cut, strict=True)):
            link.drop = lambda frame, end=end, cut=cut: path_of(end, int.from_bytes(frame[SPORT], "big")) in cut
            link.arrival_watchers.append(lambda frame, end=end: self._on_frame(end, frame))
        self.written = DEPTH * LENGTH
        self.hosts[0].mr.write(random.Random(seed).randbytes(self.written))
        self.posted = 0

    def _on_frame(self, end, frame):
        if end or frame[wire.BTH_OFFSET] in wire.DATA_OPCODES:
            self.frames[end].append(self.pair.now_ns())

    def post(self):
        """Post a write of the data that has this number."""
        at = self.posted % DEPTH * LENGTH
        self.send(WROpcode.RDMA_WRITE, (at, LENGTH), at=at, wr_id=self.posted)
        self.posted += 1

    def write_until(self, condition, keep_going=True):
        """Keep writes outstanding until a condition holds."""
        host = self.hosts[0]

        def step():
            for wc in host.cq.take(DEPTH)[1]:
                if wc.status == WCStatus.SUCCESS:
                    self.completions_at.append(self.pair.now_ns())
                else:
                    self.errors.append(WCStatus(wc.status))
            while keep_going and not self.errors and self.posted - len(self.completions_at) < DEPTH:
                self.post()
            return condition()

        self.run_until(step)

    def changes(self):
        """Return the number of port changes of each host."""
        return [host.context.counts["path_changes"] for host in self.hosts]

    @property
    def arrived_intact(self):
        """True if the memory of B holds what A wrote."""
        return self.hosts[1].mr.read(self.written, 0) == self.hosts[0].mr.read(self.written, 0)

    def cut_paths(self, directions):
        """Cut the paths that the QPs use in these directions."""
        for end in directions:
            self.cut[end].add(path_of(end, self.hosts[end].qp.engine.sport))

    def cut_and_resume(self, directions):
        """Cut the paths that the QPs use. Return the time until frames arrive again, and the rate of data after it.

        The rate is that from the second to the fourth probe time-out, as a share of the one before the cut.
        """
        at = self.pair.now_ns()
        self.cut_paths(directions)
        self.write_until(lambda: self.pair.now_ns() > at + 4 * PROBE_NS)
        resumed = max(self._end_of_gap(self.frames[end], at) for end in directions) - at
        before, after = (sum(start < time <= start + 2 * PROBE_NS for time in self.frames[0])
                         for start in (at - 2 * PROBE_NS, at + 2 * PROBE_NS))
        return resumed, after / before

    @staticmethod
    def _end_of_gap(times, at):
        """Return the end of the longest gap that ended after a time."""
        return max((later - earlier, later) for earlier, later in itertools.pairwise(times) if later > at)[1]


def rows():
    """Return the rows of cuts on timed cards: of the data's path, of the answers', and of both."""
    found = []
    for name, directions in (("data", (0,)), ("answers", (1,)), ("both", (0, 1))):
        pair = TwoPaths("timed", 1, timeout=14)
        pair.write_until(lambda pair=pair: pair.pair.now_ns() > 3 * PROBE_NS)
        resumed, rate = pair.cut_and_resume(directions)
        pair.write_until(lambda pair=pair: len(pair.completions_at) == pair.posted, keep_going=False)
        about = f"timed cards, two paths, that of {name} cut; round trip 4 µs, probe time-out 50 µs, writes of 32 KiB"
        found += [
            Row(f"network_cut_{name}_resumed", "probe time-outs", resumed / PROBE_NS, at_most=2,
                conditions=f"{about}; until frames arrive again"),
            Row(f"network_cut_{name}_goodput", "of before", rate, at_least=0.85,
                conditions="the same; from the second to the fourth probe time-out after the cut"),
            Row(f"network_cut_{name}_errors", "completions", len(pair.errors) + (not pair.arrived_intact), at_most=0,
                conditions="the same; 1 more if the bytes differ")]
        pair.close()
    return found
