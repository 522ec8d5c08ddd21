"""Tests of the timing model: lists of nodes, the match queue, and turns on the path to host memory."""

from collections import deque
from types import SimpleNamespace

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.card.card import TimedCard
from weft.model.card.pcie import TRUST, UNIT_LINES, Pcie, Read
from weft.model.card.second_level import TimedList
from weft.model.card.timing import CYCLE_NS, TIMING, HostTiming
from weft.model.card.write_engine import RINGS
from weft.model.functional.memory import HostMemory
from weft.model.functional.node import Node
from weft.model.functional.qp_incarnation import QpIncarnation
from weft.model.loop import EventLoop

QPN, GENERATION = 3, 7
LATENCY_NS = 1000


class _Bench:
    """A card without driver and line, one QP, and nodes of two holes each in blocks of host memory.

    Parameters
    ----------
    blocks : list of int
        Positions of the nodes in the buffer, in the order of the list.
    depth : int
        Nodes of the list that may be cached.
    """

    def __init__(self, blocks, depth):
        self.loop, self.memory = EventLoop(), HostMemory()
        self.card = TimedCard(self.memory, self.loop, lambda *frame: None, lambda vector: None,
                              host=HostTiming(read_latency_ns=LATENCY_NS, read_jitter=0), preset="test")
        buffer = self.memory.alloc(4096, 4096, True, 4096)
        first = buffer.physical(0) // abi.BLOCK_BYTES
        lines = [first + block for block in blocks]
        for at, (line, after) in enumerate(zip(lines, [*lines[1:], 0], strict=True)):
            node = Node(QPN, GENERATION, 10 * at, 2 * at, abi.Encoding.LIST, (0, 3))
            buffer.write((line - first) * abi.BLOCK_BYTES,
                         node.pack(next_line=after, next_adjacent=int(at + 1 < len(lines))))
        self.card.registers["prefetch_depth"], self.card.registers["prefetch_watermark"] = depth, depth
        self.card.registers["retransmit_slack"] = 1
        self.incarnation = QpIncarnation(64, TimedList, self.memory, lambda line: True, qpn=QPN,
                                         generation=GENERATION, psn=0)
        self.lines = lines
        self.retired, self.left, self.reads, self.looks = [], [], [], []
        self.card.receive_path.retire = self._retire
        self.card.pcie.line, self._read = self._asked, self.card.pcie.line
        prefetcher = self.card.second_level.prefetcher
        look, prefetcher._look = prefetcher._look, lambda *incarnation: (self.looks.append(self.loop.now_ns),
                                                                         look(*incarnation))

    def _retire(self, incarnation, lag, ticket):
        while incarnation.matcher.retired:
            self.retired.append(incarnation.matcher.retired.popleft().rsn)
            self.left.append(self.loop.now_ns + lag)

    def _asked(self, time_ns, client, read):
        self.reads.append(read.bytes // abi.BLOCK_BYTES)
        self._read(time_ns, client, read)

    def link(self, count):
        self.incarnation.matcher.link(count, self.lines[self.incarnation.matcher.linked] if count else None)
        self.card.second_level.look(self.incarnation)

    def header(self, rsn):
        """Receive the retransmission with this RSN."""
        self.card.second_level.match(SimpleNamespace(rsn=rsn), self.incarnation,
                                     SimpleNamespace(psn=10 * (rsn // 2) + 3 * (rsn % 2)))

    def pass_ns(self, time_ns):
        self.loop.run(self.loop.now_ns + time_ns)


def test_block_that_is_not_next_in_the_list_is_read_again():
    """Three nodes are adjacent; the fourth is elsewhere, and the third one's pointer refers to it."""
    bench = _Bench([0, 1, 2, 9], depth=8)
    bench.link(4)
    bench.pass_ns(10 * LATENCY_NS)
    assert bench.reads == [4, 1]        # adjacent blocks up to the linked number, then the missing one
    bench = _Bench([0, 1, 9, 10], depth=8)
    bench.link(4)
    bench.pass_ns(10 * LATENCY_NS)
    assert bench.reads == [4, 2] and [node.rsn for node in bench.incarnation.matcher.nodes] == [0, 2, 4, 6]
    assert bench.card.second_level.prefetcher.entries.count(None) == preset("test").cache_entries - 4


def test_last_node_is_read_again_after_a_link():
    """The nodes are linked one after the other, like the driver does: the pointer first."""
    for grown, reads in ((False, [1, 1]), (True, [1, 2])):
        bench = _Bench([0, 1], depth=4)
        pointed = bench.memory.read(bench.lines[0] * abi.BLOCK_BYTES, abi.BLOCK_BYTES)
        bench.memory.write(bench.lines[0] * abi.BLOCK_BYTES, Node.unpack(pointed).pack())
        bench.link(1)
        while not bench.incarnation.matcher.read or bench.incarnation.matcher.read.blocks is None:
            bench.pass_ns(CYCLE_NS)
        if not grown:
            bench.pass_ns(LATENCY_NS)
        bench.memory.write(bench.lines[0] * abi.BLOCK_BYTES, pointed)
        bench.link(1)
        bench.pass_ns(10 * LATENCY_NS)
        assert bench.reads == reads and [node.rsn for node in bench.incarnation.matcher.nodes] == [0, 2]


def test_requests_for_a_pending_list_are_merged():
    bench = _Bench([0], depth=1)
    for _ in range(5):
        bench.link(0)
    bench.pass_ns(TIMING.linked + CYCLE_NS)
    assert len(bench.looks) == 0        # it was taken, and is in progress
    bench.link(1)
    bench.pass_ns(LATENCY_NS / 2)
    assert len(bench.looks) == 2 and bench.reads == [1]


def test_retired_node_stays_cached_until_its_report_leaves():
    alone, followed = [], []
    for times, follows in ((alone, False), (followed, True)):
        bench = _Bench([0, 1, 2], depth=2)
        bench.link(3)
        bench.pass_ns(10 * LATENCY_NS)
        nodes, cache = bench.incarnation.matcher, bench.card.second_level.prefetcher
        free = cache._free(bench.loop.now_ns)
        begin = bench.loop.now_ns
        bench.header(0)
        bench.header(1)
        if follows:     # and passes over the node that the others finished
            bench.loop.call_in(2 * CYCLE_NS, bench.header, 2)
        while nodes.nodes[0].rsn == 0:
            bench.pass_ns(CYCLE_NS)
        now = bench.loop.now_ns
        assert cache.cached(bench.incarnation, now) == 2 and cache._free(now) == free and not bench.retired
        while cache.cached(bench.incarnation, bench.loop.now_ns) == 2:
            bench.pass_ns(CYCLE_NS)
        assert bench.retired == [0] and cache._free(bench.loop.now_ns) == free + 1
        times += [bench.left[0] - begin, bench.loop.now_ns - begin]
        assert len(bench.reads) == 1        # the free entry is not visible yet
        bench.pass_ns(10 * LATENCY_NS)
        assert len(bench.reads) == 2 and sum(bench.reads) == 3
    assert all(late > early for late, early in zip(alone, followed, strict=True))


def test_waiting_headers_are_tried_in_sequence():
    bench = _Bench([0, 1], depth=1)
    bench.link(2)
    for rsn in range(3):        # before the first node is cached
        bench.header(rsn)
    seen = []
    for _ in range(int(4 * LATENCY_NS / CYCLE_NS)):
        bench.pass_ns(CYCLE_NS)
        seen.append(len(bench.incarnation.matcher.waiting))
    assert [count for count, before in zip(seen, [None, *seen], strict=False) if count != before] == [0, 3, 2, 1, 0]
    assert seen.index(1, seen.index(3)) - seen.index(2, seen.index(3)) == 2      # cycles between two attempts
    assert bench.retired == [0]
    counted = bench.card.counters["match_stall_cycles"]
    assert counted == sum(1 for count in seen if count) - 1     # from the cycle after the first header's miss on


def test_software_match_retires_nodes_after_waiting_headers():
    bench = _Bench([0, 1, 2], depth=4)
    bench.link(3)
    bench.header(0)
    bench.pass_ns(LATENCY_NS / 4)
    bench.card.second_level.unmatched(SimpleNamespace(rsn=3), bench.incarnation)
    assert bench.incarnation.matcher.waiting and not bench.card.second_level.space(bench.incarnation)
    bench.pass_ns(10 * LATENCY_NS)
    assert not bench.incarnation.matcher.waiting and bench.card.second_level.space(bench.incarnation)
    assert bench.retired == [0, 2] and bench.card.counters["cache_misses"] == 1


def test_full_cache_evicts_the_last_node_of_an_idle_list():
    entries = preset("test").cache_entries
    bench = _Bench(list(range(entries)), depth=entries)
    bench.link(entries)
    bench.pass_ns(20 * LATENCY_NS)
    held = len(bench.incarnation.matcher.nodes)
    cache = bench.card.second_level.prefetcher
    assert held == entries - entries // 8       # a list without waiting headers leaves an eighth
    assert bench.incarnation.matcher.read.kept         # and has read one more node
    cache.entries[:] = filter(None, cache.entries)      # remove the other entries
    other = _Bench([20], depth=4)
    other.incarnation.matcher._read = lambda line: other.memory.read(line * abi.BLOCK_BYTES, abi.BLOCK_BYTES)
    other.incarnation.matcher.link(1, other.lines[0])
    other.card = bench.card
    bench.card.second_level.match(SimpleNamespace(rsn=0), other.incarnation, SimpleNamespace(psn=0))
    bench.pass_ns(10 * LATENCY_NS)
    assert len(bench.incarnation.matcher.nodes) == held - 1 and len(other.incarnation.matcher.nodes) == 1
    assert bench.incarnation.matcher.more and bench.incarnation.matcher.read.kept
    assert not other.incarnation.matcher.waiting


def test_small_read_waits_for_one_blocked_read_only():
    """More payload is requested than there is space for; lines alternate with it, after the read taken before."""
    loop = EventLoop()
    pcie, came = Pcie(loop, TIMING, HostTiming(read_jitter=0)), []
    payload = deque(Read(0, 1024, lambda done, number=number: came.append(number)) for number in range(12))
    pcie.next_read = lambda source: 0.0 if source == 1 and payload else None
    pcie.take_read = lambda source: payload.popleft()
    pcie.wanted(0.0)
    loop.run(500)
    assert len(payload) == 3        # eight are outstanding, one waits for space
    for name in ("small", "another"):
        pcie.line(loop.now_ns, 0, Read(0, 64, lambda done, name=name: came.append(name)))
    loop.run(100_000)
    assert came == [*range(9), "small", 9, "another", 10, 11]


def test_simultaneous_line_requests_alternate():
    loop = EventLoop()
    pcie, out = Pcie(loop, TIMING, HostTiming(read_jitter=0)), []
    for at, clients in ((100.0, (2, 0, 5, 1)), (200.0, (2, 1, 0))):
        for client in clients:
            pcie.line(at, client, Read(0, 64, lambda done, client=client: out.append(client)))
    pcie.line(196.0, 5, Read(0, 64, lambda done: out.append("earlier")))
    loop.run(10_000)
    # in order after the client that had the last turn, at first client 0; an earlier request is not affected
    assert out == [1, 2, 5, 0, "earlier", 0, 1, 2]


def test_two_reads_waiting_for_rq_leave_in_sequence():
    loop = EventLoop()
    pcie, out = Pcie(loop, TIMING, HostTiming(read_jitter=0)), []
    ask, pcie._ask = pcie._ask, lambda read: (out.append(pcie.writes.read_out), ask(read))
    pcie.writes.stream(100.0, [(0, 512)])
    pcie.writes.ask(RINGS, 104.0, 64, 64, lambda last, packet: None)
    loop.run(140)
    (begin, end, *_), (entry, *_) = pcie.writes._packets
    for client in range(4):
        pcie.line(begin + CYCLE_NS, client, Read(0, 64, lambda done: None))
    loop.run(10_000)
    assert end - begin == 9 * CYCLE_NS and entry == end     # reads and writes take turns
    assert out[0] == end and out[1] == end + 3 * CYCLE_NS   # the entry goes between them
    assert out[2] == out[0] + 4 * CYCLE_NS and out[3] == out[1] + 2 * CYCLE_NS


def test_split_size_is_known_after_the_first_completions():
    """Until then, completion headers are reserved as if the host split everywhere."""
    loop, came, seen = EventLoop(), [], []
    pcie = Pcie(loop, TIMING, HostTiming(read_jitter=0))
    payload = deque(Read(0, 512, came.append) for _ in range(2 * TRUST))

    def take(source):
        seen.append((pcie.trusted, sum(done <= loop.now_ns for done in came)))
        return payload.popleft()

    pcie.next_read, pcie.take_read = lambda source: 0.0 if source == 1 and payload else None, take
    pcie.wanted(0.0)
    loop.run(100_000)
    assert len(came) == 2 * TRUST and {trusted for trusted, _ in seen} == {1, len(UNIT_LINES)}
    assert all((trusted > 1) <= (there >= TRUST) for trusted, there in seen)


def test_interrupts_are_served_in_rotation():
    """A vector's message is sent in its turn, and the next vector is checked after it has left."""
    loop, came = EventLoop(), []
    card = TimedCard(HostMemory(), loop, lambda *frame: None, lambda vector: came.append((vector, loop.now_ns)),
                     preset="test")
    vectors = card.params.msix_vectors
    for vector in (2, 0, 2):
        card.interrupts.pend(vector, 1000.0)
    loop.run(5000)
    (first, at), (second, after) = came     # a vector raised twice before its message is sent once
    assert {first, second} == {0, 2} and 0 < after - at <= (vectors + 4) * CYCLE_NS
    card.interrupts.pend(second, 6000.0)
    loop.run(10_000)
    assert came[2][0] == second and (came[2][1] - after) / CYCLE_NS % vectors == 4     # held for this time
