"""Matcher and match queue in time: nodes come from host memory, retransmissions wait for them."""

from collections import deque

from weft.hdl.contract import abi

from ..functional.matcher import SLACK_MAX
from ..functional.node_list import NodeList
from ..functional.qp_life import QpLife
from .prefetch import Prefetcher
from .timing import CYCLE_NS

SHARE = 3           # waiting headers of one QP to free places of the match queue
TRY = 2 * CYCLE_NS          # between the tries of two waiting headers, see hdl/adamap/match/matcher.py
FORCED = 3 * CYCLE_NS       # from a header that wants the head gone until it goes
TRY_AGAIN = 6 * CYCLE_NS    # from a header that wants the head gone until that header is tried again
# From the try of a new header until an order to leave: of the first node that it passes over, and of one that it ends,
# unless a header passes over that before. A header that waited is a cycle ahead of its try.
PASSED, ENDED = -CYCLE_NS, 5 * CYCLE_NS
NEXT = 2 * CYCLE_NS         # between the orders to leave of two nodes that one header passes over
GONE = CYCLE_NS             # from the order to leave until the node is gone
QUEUED = CYCLE_NS           # from a header's miss until it counts as waiting; a miss is later for each node passed over
Reason = abi.Reason


class TimedList(NodeList):
    """A list whose nodes are there when they were fetched, not before."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.waiting = deque()      # (header, psn; None of a probe), oldest first
        self.trying = self.woken = False        # waiting ones are being tried; a node came meanwhile
        self.order = None           # RSN before which everything was sent, as headers say that went to the driver
        self.read = None            # the read that is on its way, or kept
        self.adjacent = False       # the block behind the newest one is its successor
        self.ended = []             # nodes that were matched for the last time and have no order to leave
        self.dead = False

    def fetch(self):
        """Nothing: the prefetcher does it."""

    def link(self, nodes, line):
        if not self.more:
            self.adjacent = True    # until a node says so or not
        super().link(nodes, line)

    def _block(self):
        return self.read.blocks[self._next - self.read.line]

    @property
    def line(self):
        """The block that is fetched next."""
        return self._next

    def blocks(self, line, count):
        """What lies in so many blocks now, or None if they are in no extent."""
        return [self._read(k) for k in range(line, line + count)] if line and self._in_extent(line) else None

    @property
    def more(self):
        """Nodes are linked that are not cached."""
        return self.fetched != self.linked

    def ends_with(self, node):
        """Whether a node is the last one."""
        return bool(self.nodes) and self.nodes[-1] is node

    def waits(self, rsn):
        """Whether an RSN's node may still come."""
        return self.more and not (self.nodes and self._distance(rsn) < 0)

    def holds(self, rsn):
        return any(node.slot(rsn) is not None for node in self.nodes)

    def take_back(self, line, adjacent=False):
        """The last node, of block ``line``, is to be fetched again."""
        self.nodes.pop()
        self.fetched -= 1
        self._next, self.adjacent = line, adjacent


class TimedLife(QpLife):
    """:class:`QpLife` with such a list."""

    list_type = TimedList


class SecondLevel:
    """The second level of all QPs: shares the cache, the match queue and the prefetcher.

    Parameters
    ----------
    card : TimedCard
    """

    def __init__(self, card):
        self.card = card
        self.prefetcher = Prefetcher(card, self._node_came, self._force)
        self._queued = 0
        self._stalled_since = None
        self._newest = 0        # ticket of the newest header that was tried
        self._passed = 0        # nodes that it passed over

    def look(self, life):
        """Nodes were linked."""
        self.prefetcher.look(life, first=self.card.timing.linked)

    # ------------------------------------------------------------------------------------- headers that come

    def room(self, life):
        """Whether a retransmission of this QP may wait for its node, if need be."""
        free, nodes = self.card.params.match_queue - self._queued, life.matcher
        return free > 0 and len(nodes.waiting) < SHARE * free and nodes.order is None

    def match(self, header, life, judged):
        self._enter(life, header.rsn, judged.psn, self.card.receive_path.ticket)

    def probe(self, header, life, lag):
        """A probe that the window is done with so much later than with one that slides over nothing."""
        self._enter(life, header.rsn, None, self.card.receive_path.ticket, lag)

    def unmatched(self, header, life):
        """A header that found no room: what it passes over leaves behind the headers that wait."""
        slack, nodes = max(1, self.card.registers["retransmit_slack"]), life.matcher
        if slack <= SLACK_MAX // 2:
            end = (header.rsn + 1 - (slack if slack > 1 else 0)) % (1 << 24)
            if nodes.order is None or not (end - nodes.order) >> 23 & 1:
                nodes.order = end
            self._give_order(life)

    def _give_order(self, life):
        nodes = life.matcher
        if nodes.order is not None and not nodes.waiting and self._queued < self.card.params.match_queue - 1:
            rsn, nodes.order = nodes.order, None
            self._enter(life, rsn, None, self._newest)

    def _enter(self, life, rsn, psn, ticket, lag=0.0):
        self.card.loop.call_in(lag + self.card.timing.match, self._try_new, life, rsn, psn, ticket)

    def _try_new(self, life, rsn, psn, ticket):
        nodes = life.matcher
        self._newest = max(self._newest, ticket)
        if nodes.waiting:
            self._queue(life, rsn, psn)
        elif not self._try(life, rsn, psn, new=True):
            self._queue(life, rsn, psn, self._passing)
            self._missed(life)

    def _queue(self, life, rsn, psn, lag=0.0):
        life.matcher.waiting.append((rsn, psn))
        self._wait(1, lag)
        self.card.counters["cache_misses"] += psn is not None

    def _wait(self, count, lag=0.0):
        """So many more headers wait, in a while; the cycles in which any does are counted."""
        now = self.card.loop.now_ns
        if self._queued:
            self.card.counters["match_stall_cycles"] += round((now - self._stalled_since) / CYCLE_NS)
        else:
            now += QUEUED + lag
        self._queued += count
        self._stalled_since = now

    # ------------------------------------------------------------------------------------ headers that wait

    def _node_came(self, life):
        if life.matcher.waiting:
            self.card.loop.call_in(self.card.timing.wake, self._wake, life)

    def _wake(self, life):
        """Headers of a list are tried again, in order."""
        nodes = life.matcher
        nodes.woken = nodes.trying
        if not nodes.trying:
            nodes.trying = True
            self._try_waiting(life)

    def _try_waiting(self, life):
        nodes = life.matcher
        nodes.trying = bool(nodes.waiting)
        if not nodes.waiting:
            return
        if self._try(life, *nodes.waiting[0], new=False):
            nodes.waiting.popleft()
            self._wait(-1)
            self._give_order(life)
            self.card.loop.call_in(TRY, self._try_waiting, life)
        else:
            self._missed(life)

    @property
    def _passing(self):
        """How long the header that was tried last passed nodes over."""
        return CYCLE_NS + (self._passed - 1) * NEXT if self._passed else 0.0

    def _missed(self, life):
        """The oldest header of a list has passed over all it may, and has to wait."""
        if self._passed:
            life.matcher.trying = True
            self.card.loop.call_in(self._passing, self._sleep, life)
        else:
            self._sleep(life)

    def _sleep(self, life):
        """The oldest header of a list has to wait: for another node, or for the head to go."""
        nodes = life.matcher
        if nodes.nodes and len(nodes.nodes) >= self._depth:
            nodes.trying = True
            head = nodes.nodes[0]
            self.card.loop.call_in(FORCED, self._force, life, head)
            self.card.loop.call_in(TRY_AGAIN, self._try_waiting, life)
        elif nodes.woken:
            nodes.woken, nodes.trying = False, True
            self.card.loop.call_in(TRY, self._try_waiting, life)
        else:
            nodes.trying = False
            self.prefetcher.look(life)

    # --------------------------------------------------------------------------------------------- matching

    @property
    def _depth(self):
        return max(1, self.card.registers["prefetch_depth"])

    def _try(self, life, rsn, psn, new):
        """Match a header; false if it has to wait."""
        nodes, slack = life.matcher, self.card.registers["retransmit_slack"]
        ahead = 0.0 if new else CYCLE_NS
        if psn is None:
            nodes.probe(rsn)
        else:
            nodes.pass_over(rsn, slack)
        self._pass_ended(nodes, psn, rsn, slack)
        self._passed = len(nodes.retired)
        self._leave(life, PASSED - ahead)
        hit = psn is not None and nodes.holds(rsn)
        if not hit and not nodes.dead and nodes.waits(rsn) and (psn is not None or not nodes.nodes):
            return False
        if psn is not None:
            self.card.counters["cache_hits"] += hit and new
            self.card.receive_path.refuse_match(nodes.match(psn, rsn, slack))
            while nodes.retired:
                nodes.ended.append(nodes.retired.popleft())
                self.card.loop.call_in(ENDED - ahead, self._ripe, life, nodes.ended[-1])
        return True

    @staticmethod
    def _pass_ended(nodes, psn, rsn, slack):
        """A header passes over nodes that ended, too; they stand before all others."""
        passed = [node for node in nodes.ended if (
            nodes.probed(node, rsn) if psn is None else nodes.passed(node, rsn, slack))]
        nodes.retired.extendleft(reversed(passed))
        for node in passed:
            nodes.ended.remove(node)

    def _ripe(self, life, node):
        """A node that ended leaves."""
        if node in life.matcher.ended:
            life.matcher.ended.remove(node)
            life.matcher.retired.append(node)
            self._leave(life, 0.0)

    def _force(self, life, head=None):
        """The head of a list goes, if it is still this one, or any."""
        nodes = life.matcher
        if nodes.nodes and head in (None, nodes.nodes[0]):
            nodes.force()
            self._leave(life, 0.0)

    def _leave(self, life, lag):
        """Report the nodes that get the order to leave so much later, and give their places back."""
        retired = life.matcher.retired
        if retired:
            gone = self.card.loop.now_ns + lag + GONE
            self.prefetcher.left((node, gone + k * NEXT) for k, node in enumerate(retired))
            self.card.receive_path.retire(life, lag, self._newest)
            self.prefetcher.look(life, lag + GONE)

    def forget(self, life):
        """The QP is gone."""
        nodes = life.matcher
        now = self.card.loop.now_ns
        self.prefetcher.left((node, now) for node in (*nodes.nodes, *nodes.ended))
        nodes.ended.clear()
        self.prefetcher.forget(life)
        self._wait(-len(nodes.waiting))
        nodes.waiting.clear()
        nodes.nodes.clear()
        nodes.dead = True
