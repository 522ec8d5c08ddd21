"""Two hosts over two equal paths that a hash of the UDP source port chooses; one or both are cut."""

import itertools
import random
import zlib
from types import SimpleNamespace

import pytest

from weft.driver.protocol.aeth import ASKS, PathQuery
from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import wire
from weft.model.card.host import TimedDevice
from weft.model.link import LinkConfig
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


@pytest.mark.parametrize("directions", [(0,), (1,), (0, 1)], ids=("data", "answers", "both"))
@pytest.mark.parametrize("cards", CARDS)
def test_traffic_is_back_within_two_probe_timeouts_after_a_cut(cards, directions):
    results = []
    for seed in range(2):
        pair = TwoPaths(cards, seed, timeout=14)
        pair.write_until(lambda pair=pair: pair.pair.now_ns() > 3 * PROBE_NS)
        results.append(pair.cut_and_resume(directions))
        pair.write_until(lambda pair=pair: len(pair.completions_at) == pair.posted, keep_going=False)
        assert not pair.errors and pair.changes() == [1, 1]
        assert pair.arrived_intact
        pair.close()
    assert max(resumed for resumed, _ in results) <= 2 * PROBE_NS, results
    assert min(rate for _, rate in results) >= 0.85, results


@pytest.mark.parametrize("directions", [(0,), (1,)], ids=("data", "answers"))
def test_a_cut_within_a_write(directions):
    pair = TwoPaths("timed", 5, timeout=14)
    for n in (1, 2):
        pair.send(WROpcode.RDMA_WRITE, (0, pair.written), at=0, wr_id=n)
        pair.settle(20_000)
        if n == 2:
            pair.cut_paths(directions)
        assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    assert pair.arrived_intact and pair.changes() == [1, 1]
    assert pair.hosts[0].qp.sender.counts["path_probes"]
    pair.close()


@pytest.mark.parametrize("search", [True, False])
def test_without_a_path_the_request_fails(search):
    config = ContextConfig(probe_timeout_ns=PROBE_NS, ring_log2=8, path_search=search)
    pair = TwoPaths("functional", 1, config, timeout=6, retry_cnt=2)
    pair.write_until(lambda: len(pair.completions_at) > DEPTH)
    pair.cut[0].update({0, 1} if search else {path_of(0, pair.hosts[0].qp.engine.sport)})
    start = pair.pair.now_ns()
    pair.write_until(lambda: pair.errors)
    assert pair.pair.now_ns() - start < 6 * (4096 << 6)
    assert pair.changes() == [0, 0] and pair.errors[0] is WCStatus.RETRY_EXC_ERR
    pair.close()


def test_a_slow_peer_keeps_its_path():
    """Its program does not call the driver for longer than all quick probes take."""
    pair = TwoPaths("functional", 1, timeout=14)
    pair.write_until(lambda: len(pair.completions_at) > DEPTH)
    peer, progress = pair.hosts[1].context, pair.hosts[1].context.progress
    for _ in range(3):
        peer.progress = lambda: False
        pair.settle(20 * PROBE_NS)
        peer.progress = progress
        pair.write_until(lambda: len(pair.completions_at) == pair.posted, keep_going=False)
        pair.settle(PROBE_NS)
        pair.post()
    assert pair.changes() == [0, 0] and pair.hosts[0].qp.sender.counts["path_probes"]
    pair.close()


@pytest.mark.parametrize("delay_ns", [1_000_000, 15_000_000])
def test_a_long_path_is_kept(delay_ns):
    """The first answers arrive long after the probe time-out."""
    pair = TwoPaths("functional", 1, delay_ns=delay_ns)
    for _ in range(3):
        pair.post()
        pair.statuses(0, 1)
    assert pair.changes() == [0, 0]
    pair.close()


def test_only_answers_to_questions_change_the_port():
    """A peer may choose the port that it is sent to, within the range, and nothing else."""
    pair = TwoPaths("functional", 1)
    (host, peer), now = pair.hosts, pair.pair.now_ns()
    engine, first = host.qp.engine, host.qp.engine.sport

    def arrive(syndrome, **fields):
        engine.on_control(SimpleNamespace(opcode=wire.Opcode.ACKNOWLEDGE, src_ip=peer.context.ip, psn=0,
                                          syndrome=syndrome, **fields), now)

    for port in range(0xC000, 0xC100):
        arrive(PathQuery.ANSWER, sport=0xC001, msn=port)
    assert engine.sport == first
    for number in range(100):
        arrive(PathQuery.ASK, sport=number, msn=0)
    sent = host.context.counts["ACKNOWLEDGE"]
    pair.settle(10_000)
    assert host.context.counts["ACKNOWLEDGE"] == sent + ASKS, "questions of one round have a limit"
    arrive(PathQuery.TAKE, sport=5, msn=0xFF_1234)
    assert engine.sport == 0xD234 and pair.changes() == [1, 0]
    pair.post()
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    host.context.engine.config.path_search = False
    arrive(PathQuery.TAKE, sport=5, msn=0)
    assert engine.sport == 0xD234
    pair.close()
