"""Random operations of all kinds over many QPs, with a comparison of the resulting memory contents."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from weft.driver.device.page_table import RangeAllocator
from weft.driver.terms.enums import MTU, SendFlags, WCFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.settings import ALL_ACCESS

Op = WROpcode
KINDS = (Op.RDMA_WRITE, Op.RDMA_WRITE_WITH_IMM, Op.SEND, Op.SEND_WITH_IMM, Op.RDMA_READ, Op.ATOMIC_FETCH_AND_ADD,
         Op.ATOMIC_CMP_AND_SWP)
ATOMICS, SENDS = KINDS[5:], KINDS[2:4]
WITH_IMM = (Op.RDMA_WRITE_WITH_IMM, Op.SEND_WITH_IMM)
RECEIVED = {Op.RDMA_WRITE_WITH_IMM: WCOpcode.RECV_RDMA_WITH_IMM, Op.SEND: WCOpcode.RECV,
            Op.SEND_WITH_IMM: WCOpcode.RECV}
WORDS = 8              # targets of the atomics of all QPs
GUARD, GUARDED = b"\xA5", 16
INLINE_MAX, SGES_MAX, WINDOW = 256, 16, 12
SILENCE_NS = 20_000_000
LINK = LinkConfig(delay_ns=2_000, loss=0.02, reorder=0.02, duplicate=0.02, reorder_distance=4)


def functional_traffic(seed, *, qps=64, longest=1 << 20, arena=48 << 20):
    """Return :class:`Traffic` over functional cards, and the links between them."""
    config = ContextConfig(ring_log2=8, probe_timeout_ns=60_000, reorder_distance=8, retransmit_slack=8,
                           random=random.Random(seed))
    pair = make_pair(config, seed=seed, forward=LINK, backward=LINK, preset="basic")
    loop = pair.loop
    mtus = [MTU.MTU_1024, MTU.MTU_4096, MTU.MTU_4096]
    return Traffic(pair.contexts, lambda ns: loop.run(loop.now_ns + ns), seed, qps=qps, longest=longest, arena=arena,
                   mtus=mtus), pair.links


class WrongTraffic(AssertionError):
    """A result is unexpected or missing."""


@dataclass
class Item:
    """Outstanding request: at its end, ``data`` must be at ``target`` of host ``where``."""

    wr_id: int
    opcode: Op
    data: bytes
    where: int
    target: list
    signaled: bool
    imm: int | None
    held: list = field(default_factory=list)    # (host, offset, bytes) freed at completion
    compare_add: int = 0
    swap: int = 0
    word: int = 0


class End:
    """Host with memory, QPs, and outstanding requests."""

    def __init__(self, context, size, qps, longest, shared):
        self.context, self.longest = context, longest
        self.pd, self.cq = PD(context), CQ(context, 1 << 16)
        self.mr = MR(self.pd, size, ALL_ACCESS)
        self.free = RangeAllocator(size - 64 * WORDS)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(64, SGES_MAX)))
        caps = {"max_send_wr": 2 * WINDOW, "max_recv_wr": 64, "max_inline_data": INLINE_MAX}
        self.qps = [QP(self.pd, rc_init_attr(self.cq, srq=self.srq if i in shared else None, **caps))
                    for i in range(qps)]
        self.number = {qp.qp_num: i for i, qp in enumerate(self.qps)}
        self.open = [deque() for _ in range(qps)]         # send requests
        self.coming = [deque() for _ in range(qps)]       # items of the peer that will consume a receive
        self.posted = [0] * qps                           # receives that are not shared
        self.receives = {}                                # wr_id -> (sges, held)

    def word(self, n):
        """Return the offset of a word of the atomics."""
        return self.mr.length - 64 * WORDS + 64 * n

    def take(self, length):
        """Allocate ``length`` bytes between guards; return their offset, or None."""
        try:
            at = self.free.alloc(length + 2 * GUARDED)
        except MemoryError:
            return None
        self.mr.write(GUARD * GUARDED, offset=at)
        self.mr.write(GUARD * GUARDED, offset=at + GUARDED + length)
        return at + GUARDED

    def give(self, at, length):
        """Check the guards of an allocation and free it."""
        for guard in (at - GUARDED, at + length):
            if self.mr.read(GUARDED, guard) != GUARD * GUARDED:
                raise WrongTraffic(f"the bytes at {guard} beside {length} at {at} were written")
        self.free.free(at - GUARDED, length + 2 * GUARDED)

    def gather(self, places):
        """Return the bytes at (offset, length) places."""
        return b"".join(self.mr.read(n, at) for at, n in places if n)


class Traffic:
    """Two connected cards under random operations.

    ``pause(ns)`` advances time. Half of the QPs share receives; ``longest`` is the length of the longest message,
    ``arena`` that of the memory at each end, in bytes.
    """

    def __init__(self, contexts, pause, seed, *, qps, longest, arena, mtus=tuple(MTU)):
        self.rng = rng = random.Random(f"operations {seed}")
        self.contexts, self._pause, self.longest = contexts, pause, longest
        self.shared = set(range(0, qps, 2))
        self.ends = [End(c, arena, qps, longest, self.shared) for c in contexts]
        for i in range(qps):
            mtu = rng.choice(mtus)
            a, b = (end.qps[i] for end in self.ends)
            first, second = a.connection, b.connection
            for qp, other in ((a, second), (b, first)):
                qp.connect(other, path_mtu=mtu, qp_access_flags=ALL_ACCESS, rnr_retry=7, min_rnr_timer=1)
        self.counts = Counter()
        self.history = [[[] for _ in range(WORDS)] for _ in self.ends]     # (old, new) of each word
        self._wr_id = 0

    def _length(self):
        """Return a log-uniform length from 0 on."""
        return int(2 ** (self.rng.random() * (self.longest.bit_length())) - 1) if self.longest else 0

    def _number(self):
        self._wr_id += 1
        return self._wr_id

    def _cut(self, at, length):
        """Return the same bytes as up to 16 places in any order."""
        count = self.rng.choice([1, 1, 1, self.rng.randint(2, SGES_MAX)])
        cuts = [0, *sorted(self.rng.choices(range(length + 1), k=count - 1)), length]
        places = [(at + a, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
        self.rng.shuffle(places)
        return places

    def _sges(self, end, places):
        return [SGE(end.mr.buf + at, n, end.mr.lkey) for at, n in places]

    def post(self, side):
        """Post one more request of a host; return False if there is no space."""
        rng, end, peer = self.rng, self.ends[side], self.ends[1 - side]
        qp = rng.randrange(len(end.qps))
        if len(end.open[qp]) >= WINDOW:
            return False
        opcode = rng.choice(KINDS)
        length = 8 if opcode in ATOMICS else min(self._length(), self.longest)
        if opcode in SENDS and qp in self.shared:
            length = min(length, self._shared_longest)
        here = end.take(length)
        there = None if opcode in SENDS or opcode in ATOMICS else peer.take(length)
        if here is None or there is None and not (opcode in SENDS or opcode in ATOMICS):
            if here is not None:
                end.give(here, length)
            return False
        places = self._cut(here, length)
        flags = SendFlags(0)
        flags |= SendFlags.SIGNALED if rng.random() < 0.7 else 0
        flags |= SendFlags.FENCE if rng.random() < 0.1 else 0
        flags |= SendFlags.SOLICITED if rng.random() < 0.2 else 0
        if length <= INLINE_MAX and opcode in KINDS[:4] and rng.random() < 0.3:
            flags |= SendFlags.INLINE
        item = self._item(side, opcode, length, places, here, there, bool(flags & SendFlags.SIGNALED))
        at = peer.word(item.word) if opcode in ATOMICS else there or 0
        wr = SendWR(item.wr_id, opcode, sg=self._sges(end, places), send_flags=flags, imm_data=item.imm or 0,
                    rkey=peer.mr.rkey, remote_addr=peer.mr.buf + at, compare_add=item.compare_add, swap=item.swap)
        end.open[qp].append(item)
        if opcode in RECEIVED:
            peer.coming[qp].append(item)
        end.qps[qp].post_send(wr)
        self.counts[opcode.name] += 1
        self.counts["inline"] += bool(flags & SendFlags.INLINE)
        self.counts["bytes"] += length
        return True

    def _item(self, side, opcode, length, places, here, there, signaled):
        rng, end, peer = self.rng, self.ends[side], self.ends[1 - side]
        data = rng.randbytes(length)
        held = [(side, here, length)]
        where, target = side, places
        if opcode is Op.RDMA_READ:
            peer.mr.write(data, offset=there)
        elif opcode not in ATOMICS:
            end.mr.write(data, offset=here)
            data, where, target = end.gather(places), 1 - side, [(there, length)]
        if there is not None:
            held.append((1 - side, there, length))
        item = Item(self._number(), opcode, data, where, target, signaled,
                    rng.getrandbits(32) if opcode in WITH_IMM else None, held)
        if opcode in ATOMICS:
            item.word = rng.randrange(WORDS)
            item.compare_add, item.swap = rng.getrandbits(64), rng.getrandbits(64)
            if opcode is Op.ATOMIC_CMP_AND_SWP and rng.random() < 0.7:
                item.compare_add = int.from_bytes(peer.mr.read(8, peer.word(item.word)), "little")
        return item

    @property
    def _shared_longest(self):
        return min(self.longest, 1 << 16)

    def supply(self, side):
        """Post a missing receive with some probability, in most cases before the message arrives."""
        end = self.ends[side]
        if end.srq.query().max_wr > len(end.srq.receives) and self.rng.random() < 0.2:
            self._receive(end, end.srq, self._shared_longest)
        for qp, coming in enumerate(end.coming):
            if qp in self.shared:
                continue
            if end.posted[qp] < len(coming) and self.rng.random() < 0.3:
                self._receive(end, end.qps[qp], len(coming[end.posted[qp]].data), qp)

    def _receive(self, end, queue, length, qp=None):
        length += self.rng.choice([0, 0, self.rng.randrange(100)])
        at = end.take(length)
        if at is None:
            return
        places = self._cut(at, length)
        number = self._number()
        end.receives[number] = (places, at, length)
        queue.post_recv(RecvWR(number, sg=self._sges(end, places)))
        if qp is not None:
            end.posted[qp] += 1

    def poll(self, side):
        """Check the completions of a host."""
        end = self.ends[side]
        for wc in end.cq.take(1 << 16)[1]:
            if wc.status != WCStatus.SUCCESS:
                raise WrongTraffic(f"{wc} at host {side}")
            qp = end.number[wc.qp_num]
            if wc.opcode in (WCOpcode.RECV, WCOpcode.RECV_RDMA_WITH_IMM):
                self._received(end, qp, wc)
            else:
                self._sent(side, end, qp, wc)

    def _received(self, end, qp, wc):
        if not end.coming[qp] or wc.wr_id not in end.receives:
            raise WrongTraffic(f"nothing was to take a receive: {wc}")
        item, (places, at, length) = end.coming[qp].popleft(), end.receives.pop(wc.wr_id)
        end.posted[qp] -= qp not in self.shared
        imm = wc.imm_data if wc.wc_flags & WCFlags.WITH_IMM else None
        if (wc.opcode, wc.byte_len, imm) != (RECEIVED[item.opcode], len(item.data), item.imm):
            raise WrongTraffic(f"{wc} for {item.opcode.name} of {len(item.data)} bytes with {item.imm}")
        if item.opcode in SENDS:
            if end.gather(places)[: len(item.data)] != item.data:
                raise WrongTraffic(f"{wc}: other bytes came")
        else:
            self._compare(item)
        end.give(at, length)
        self.counts["received"] += 1

    def _sent(self, side, end, qp, wc):
        """Complete a request, and all older ones that were not signaled."""
        while True:
            if not end.open[qp]:
                raise WrongTraffic(f"nothing was to complete: {wc}")
            item = end.open[qp].popleft()
            if item.signaled and item.wr_id != wc.wr_id:
                raise WrongTraffic(f"{wc} before {item.wr_id}")
            self._complete(item)
            if item.signaled:
                return

    def _complete(self, item):
        if item.opcode in ATOMICS:
            old = int.from_bytes(self.ends[item.where].gather(item.target), "little")
            new = ((old + item.compare_add) % (1 << 64) if item.opcode is Op.ATOMIC_FETCH_AND_ADD
                   else item.swap if old == item.compare_add else old)
            self.history[1 - item.where][item.word].append((old, new))
            self.counts["swapped"] += item.opcode is Op.ATOMIC_CMP_AND_SWP and new != old
        elif item.opcode not in SENDS:
            self._compare(item)
        for where, at, length in item.held:
            self.ends[where].give(at, length)
        self.counts["completed"] += 1

    def _compare(self, item):
        if self.ends[item.where].gather(item.target) != item.data:
            raise WrongTraffic(f"request {item.wr_id}, {item.opcode.name}: other bytes came")

    def run(self, operations, report_progress=lambda posted: None):
        """Post ``operations`` requests, wait for all of them, and check the results of atomics; return the counts."""
        posted, now_ns = 0, self.contexts[0].device.now_ns
        last, done = now_ns(), 0
        while posted < operations or any(q for end in self.ends for q in (*end.open, *end.coming)):
            for side in (0, 1):
                self.contexts[side].progress()
                self.poll(side)
                self.supply(side)
                for _ in range(4):
                    posted += posted < operations and self.post(side)
            if posted >= operations:
                self._flush_unsignaled()
            self._pause(self.rng.choice([200, 500, 2_000]))
            if (now := self.counts["completed"] + self.counts["received"]) > done:
                done, last = now, now_ns()
                report_progress(posted)
            elif now_ns() - last > SILENCE_NS:
                raise WrongTraffic(f"nothing completes any more after {done} completions")
        self._check_atomics()
        return self.counts

    def _flush_unsignaled(self):
        """Post a signaled request on each QP whose newest outstanding request is not signaled.

        Requests after the last signaled one complete without notice; the new completion confirms them.
        """
        for side, end in enumerate(self.ends):
            for qp, items in enumerate(end.open):
                if items and not items[-1].signaled:
                    item, mr = Item(self._number(), Op.RDMA_WRITE, b"", side, [], True, None), self.ends[1 - side].mr
                    items.append(item)
                    end.qps[qp].post_send(SendWR(item.wr_id, Op.RDMA_WRITE, rkey=mr.rkey, remote_addr=mr.buf))

    def _check_atomics(self):
        """Check that the old and new values of the atomics on a word form one chain that ends in its present value."""
        for end, words in zip(self.ends, self.history, strict=True):
            for n, history in enumerate(words):
                steps = {old: new for old, new in history if old != new}
                if len(steps) != sum(old != new for old, new in history):
                    raise WrongTraffic(f"word {n}: two atomics found the same value")
                value, seen = 0, {0}
                while value in steps:
                    value = steps.pop(value)
                    seen.add(value)
                if steps or not {old for old, _ in history} <= seen:
                    raise WrongTraffic(f"word {n}: an atomic found what none left")
                if value != int.from_bytes(end.mr.read(8, end.word(n)), "little"):
                    raise WrongTraffic(f"word {n} is not the result of the last atomic")

    def close(self):
        """Close all objects, and check that no completion or window is left."""
        for end in self.ends:
            if len(end.cq.take(1)[1]):
                raise WrongTraffic("a completion too many")
            end.pd.close()
            end.cq.close()
        for context in self.contexts:
            if context.engine.lender.windows.open:
                raise WrongTraffic("a window is left")
            context.close()
