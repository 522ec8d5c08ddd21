"""Random legal traffic on the three ports of the head cache."""

from collections import Counter, defaultdict

from weft.hdl.contract import abi
from weft.tb.test.hdl.adamap.head_cache_model import State
from weft.tb.test.hdl.adamap.head_cache_ports import Cycle
from weft.tb.test.hdl.adamap.random_nodes import random_node

QPS = 4
LINES = 1 << 9
LISTED = 3          # cycles for which the port knows where a list ends before a node is filled in
MARK_LAG = 3        # cycles from a node's retirement to the last of its marks


class Traffic:
    """Random legal requests of prefetcher, matcher and retirements."""

    def __init__(self, rng, ports):
        self.rng, self.ports, self.model, self.now, self.seen = rng, ports, ports.model, 0, Counter()
        self.generation = dict.fromkeys(range(QPS), 0)
        self.left_at = defaultdict(lambda: -100)    # entry -> cycle in which its node retired
        self.marked = (-100, None)                  # cycle and entry of the last mark
        self.growing = 0.5
        self.listed, self.since, self.filled_at = 0, 0, -100    # QP selected at the port, since which cycle; last fill

    def entries(self, state):
        return [k for k, entry in enumerate(self.model.entries) if entry.state is state]

    def end(self, qpn):
        """Return the RSN with which a list continues; None if it has no node."""
        ends = {node.next_rsn for node in self.model.nodes(qpn).values()}
        starts = {node.rsn for node in self.model.nodes(qpn).values()}
        return next(iter(ends - starts), None)

    def offer(self):
        """Return a node that mostly continues the selected list."""
        rng, qpn, chance = self.rng, self.listed, self.rng.random()
        end = self.end(qpn)
        rsn = rng.choice([0, (1 << 24) - 2, (1 << 32) - 2, rng.getrandbits(32)]) if end is None else end
        if end is not None and chance < 0.2:
            node = rng.choice(list(self.model.nodes(qpn).values()))
            rsn = rng.choice([rsn + 1, rsn - 1, node.rsn, node.rsn, rng.getrandbits(32), rsn + (1 << 24)])
        return random_node(rng, qpn=qpn, generation=self.generation[qpn], rsn=rsn)

    def cycle(self):
        rng, model = self.rng, self.model
        if rng.random() < 0.2:
            wanted = [self.ports.reserved[k].qpn for k in self.entries(State.RESERVED)]
            self.listed, self.since = rng.choice([rng.randrange(QPS), *wanted]), self.now
        qpn = rng.randrange(QPS)
        offer = self.offer()
        near = rng.choice(list(model.nodes(qpn).values()) or [None])
        reach = {"passed_rsn": (near.next_rsn + rng.choice([0, -1, 1, rng.getrandbits(24)]) if near
                                else rng.getrandbits(24)) % (1 << 24),
                 "is_header": int(rng.random() < 0.8), "any_head": rng.randrange(2)}
        c = Cycle(
            qpn=qpn, reach=reach, generation=(self.generation[qpn] - (rng.random() < 0.1)) % 256,
            rsn=(near.rsn + rng.randint(-1, near.count) if near else offer.rsn) % (1 << 24),
            look=rng.random() < 0.8, offer=offer, line=rng.randrange(LINES),
            peek=rng.randrange(len(model.entries)), listed=self.listed)
        kept = [k for k, entry in enumerate(model.entries) if entry.node is not None]
        if kept:
            c.read = rng.choice([*kept, None, self.marked[1] if self.marked[1] in kept else None])
            c.retire_read = rng.choice([*kept, None])
        self._match(c)
        self._fill(c)
        self._note(c)
        return c

    def _match(self, c):
        """Request a mark and a retirement, or a flush."""
        rng, model = self.rng, self.model
        if rng.random() < 0.02:
            longest = max(range(QPS), key=lambda qpn: len(model.nodes(qpn)))
            c.flush = rng.choice([longest, rng.randrange(QPS)])
            return
        valid = self.entries(State.VALID)
        heads = [k for k in valid if model.entries[k].node.head]
        late = [k for k, at in self.left_at.items() if self.now - at <= MARK_LAG]
        if rng.random() < 0.8:
            among = [k for k in rng.choice([heads, heads, valid, late]) if model.entries[k].node.open]
            if among:
                index = rng.choice([among[0], rng.choice(among)])
                bits = model.entries[index].node.open
                c.mark = index, rng.choice([k for k in range(bits.bit_length()) if bits >> k & 1])
        if rng.random() < 0.6 - 0.5 * self.growing:
            looked = self.ports.looked
            head, ripe = model.head(*looked[:2]) if looked else None, self.ports.ripe
            c.ripe = ripe is not None and (head is None or rng.random() < 0.7)
            c.retire = ripe if c.ripe else head if not self.ports.settles else None

    def _fill(self, c):
        """Fill a fetched node, reserve an entry, or release one."""
        rng, model, at_rest = self.rng, self.model, c.mark is None and c.retire is None and c.flush is None
        reserved, node, free = self.entries(State.RESERVED), self.ports.reserved, self.ports.free
        fit = [k for k in reserved if self._fits(node[k])]
        here = [k for k in fit if node[k].qpn == self.listed]
        out = [k for k in self.entries(State.VALID) if model.last(k) and not model.entries[k].node.touched]
        choice = rng.random()
        if free is not None and self.now - self.left_at[free] > MARK_LAG and choice < self.growing:
            c.reserve = True
        elif (here and choice < 0.9 and c.flush != self.listed
              and self.now >= self.since + LISTED and self.now > self.filled_at + LISTED):
            c.fill = rng.choice(here)
            c.offer = node[c.fill]
        elif reserved and choice < 0.93:
            c.release = rng.choice([k for k in reserved if k not in fit] or reserved)
        elif at_rest and self.ports.peeked in out:
            c.release = c.peek = self.ports.peeked
            self.since = self.now
        elif out and at_rest:       # it may be evicted in the next cycle
            c.peek = rng.choice(out)

    def _fits(self, node):
        """Return True if a fetched node still continues its list."""
        return self.model.follows(node) and node.generation == self.generation[node.qpn]

    def _note(self, c):
        """Count the interesting cases of this cycle."""
        model, saw = self.model, self.seen
        node = {k: entry.node for k, entry in enumerate(model.entries)}
        looked = self.ports.looked or (c.qpn, c.generation, c.rsn)
        (qpn, _, rsn), hit, own = looked, model.lookup(*looked), model.nodes(*looked[:2])
        saw["hit"] += hit is not None
        saw["miss"] += hit is None and bool(own)
        saw["hit after the head"] += hit is not None and hit.next
        saw["hit over the end of the RSNs"] += hit is not None and rsn < node[hit.index].rsn % (1 << 24)
        saw["settles"] += self.ports.settles
        saw["stale generation"] += not own and any(n.slot(rsn) is not None for n in model.nodes(qpn).values())
        saw["two ripe heads"] += len(model.ripe) > 1
        saw["full pool"] += not model.free
        others = model.nodes(c.offer.qpn).values()
        saw["first" if not others else "follows" if model.follows(c.offer) else
            "there already" if any(n.rsn == c.offer.rsn for n in others) else "does not follow"] += 1
        if model.entries[c.peek].state is State.VALID:
            saw["last" if model.last(c.peek) else "not the last"] += 1
        if c.flush is not None:
            several = len(model.nodes(c.flush)) > 1
            saw["flush of several"] += several
            saw["flush beside reserved entries"] += several and not model.idle
        if c.release is not None:
            saw["evicted" if model.entries[c.release].state is State.VALID else "given back"] += 1
        if c.mark is not None:
            index, bit = c.mark
            left = node[index]
            saw["finished", left.encoding] += left.open == 1 << bit
            saw["mark after retirement"] += model.entries[index].state is not State.VALID
            saw["read beside a mark"] += index in (c.read, c.retire_read)
        saw["read a cycle after a mark"] += self.marked[0] == self.now - 1 and self.marked[1] == c.read is not None
        if c.read is not None:
            saw["read", node[c.read].encoding] += 1
        if c.retire is not None:
            saw["residue" if node[c.retire].open else "nothing left"] += 1
            saw["of the list looked up"] += not c.ripe
            saw["two heads in a row"] += self.left_at[c.retire] < self.now - 1 in self.left_at.values()
        if c.fill is not None:
            blocked = c.mark is not None and node[c.mark[0]].encoding == abi.Encoding.BITMAP
            saw["fill blocked by a mark"] += blocked
            saw["fill beside a mark"] += c.mark is not None and not blocked
            wanted, by = (c.rsn, c.qpn) if c.look else (rsn, qpn)
            has = not blocked and by == c.offer.qpn and (wanted - c.offer.rsn) % (1 << 24) < len(c.offer.holes)
            saw["fill of what is asked for" if c.look else "fill of what is looked up"] += has
            if c.retire is not None and node[c.retire].qpn == c.offer.qpn:
                saw["fill beside a retirement"] += len(others) > 1
                saw["head by fill and retirement"] += len(others) == 1
        saw["everything at once"] += None not in (c.mark, c.retire, c.read, c.retire_read) and (
            c.reserve or c.fill is not None)

    def after(self, c):
        """Follow the changes at the end of a cycle."""
        self.now += 1
        if c.mark is not None:
            self.marked = self.now - 1, c.mark[0]
        if c.fill is not None and not self.ports.mark_blocks(c):
            self.filled_at = self.now - 1
        if c.retire is not None:
            self.left_at[c.retire] = self.now - 1
        if c.flush is not None:
            self.generation[c.flush] = (self.generation[c.flush] + 1) % 256
