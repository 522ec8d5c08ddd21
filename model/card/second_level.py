"""Matcher and match queue of the timing model: retransmissions wait for nodes from host memory."""

from collections import deque

from weft.hdl.contract import abi

from ..functional.matcher import SLACK_MAX
from ..functional.node_list import NodeList
from .prefetch import Prefetcher
from .timing import CYCLE_NS

SHARE = 3           # limit of the ratio of a QP's waiting headers to the free entries of the match queue
TRY = 2 * CYCLE_NS          # between the attempts of two waiting headers, see hdl/adamap/match/matcher.py
FORCED = 3 * CYCLE_NS       # from a header that forces the head to retire until it does
TRY_AGAIN = 6 * CYCLE_NS    # from a header that forces the head to retire until the header's next attempt
# From the attempt of a new header until an order to retire: of the first node that it passes, and of a node that it
# finishes, unless a header passes that node before. A header that waited is a cycle ahead of its attempt.
PASSED, ENDED = -CYCLE_NS, 5 * CYCLE_NS
NEXT = 2 * CYCLE_NS         # between the orders to retire of two nodes that one header passes
GONE = CYCLE_NS             # from the order to retire until the node is gone
QUEUED = CYCLE_NS           # from a header's miss until it counts as waiting; each passed node delays a miss
Reason = abi.Reason


class TimedList(NodeList):
    """List whose nodes are available only after they were fetched."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.waiting = deque()      # (rsn, psn; None for a probe), oldest first
        self.trying = self.woken = False        # waiting headers are being matched; a node arrived meanwhile
        self.order = None           # RSN before which everything was sent, by the headers left to the driver
        self.read = None            # the outstanding or kept read
        self.adjacent = False       # the successor of the newest node is in the next block
        self.ended = []             # finished nodes that have no order to retire yet
        self.destroyed = False

    def fetch(self):
        """Do nothing: the prefetcher fetches."""

    def link(self, nodes, line):
        if not self.more:
            self.adjacent = True    # until the next node is read, which has the flag
        super().link(nodes, line)

    def _block(self):
        return self.read.blocks[self._next - self.read.line]

    @property
    def line(self):
        """Next block to fetch."""
        return self._next

    def blocks(self, line, count):
        """Return the contents of ``count`` blocks, or None if they are in no extent."""
        return [self._read(k) for k in range(line, line + count)] if line and self._in_extent(line) else None

    @property
    def more(self):
        """True if a linked node is not cached."""
        return self.fetched != self.linked

    def ends_with(self, node):
        """Return whether a node is the last one."""
        return bool(self.nodes) and self.nodes[-1] is node

    def waits(self, rsn):
        """Return whether the node of an RSN may still be fetched."""
        return self.more and not (self.nodes and self._distance(rsn) < 0)

    def holds(self, rsn):
        return any(node.slot(rsn) is not None for node in self.nodes)

    def take_back(self, line, adjacent=False):
        """Remove the last node, of block ``line``, so that it is fetched again."""
        self.nodes.pop()
        self.fetched -= 1
        self._next, self.adjacent = line, adjacent


class SecondLevel:
    """Second level of all QPs, with the shared cache, match queue and prefetcher.

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
        self._passed = 0        # number of nodes that it passed

    def look(self, incarnation):
        """Schedule a check of a list after nodes were linked."""
        self.prefetcher.look(incarnation, first=self.card.timing.linked)

    # --------------------------------------------------------------------------------------- arriving headers

    def space(self, incarnation):
        """Return whether a retransmission of this QP may wait for its node."""
        free, nodes = self.card.params.match_queue - self._queued, incarnation.matcher
        return free > 0 and len(nodes.waiting) < SHARE * free and nodes.order is None

    def match(self, header, incarnation, judged):
        self._enter(incarnation, header.rsn, judged.psn, self.card.receive_path.ticket)

    def probe(self, header, incarnation, lag):
        """Process a probe; ``lag`` is the additional time in the window of a probe that slides over holes."""
        self._enter(incarnation, header.rsn, None, self.card.receive_path.ticket, lag)

    def unmatched(self, header, incarnation):
        """Process a header without a match queue entry: nodes that it passes retire after the waiting headers."""
        slack, nodes = max(1, self.card.registers["retransmit_slack"]), incarnation.matcher
        if slack <= SLACK_MAX // 2:
            end = (header.rsn + 1 - (slack if slack > 1 else 0)) % (1 << 24)
            if nodes.order is None or not (end - nodes.order) >> 23 & 1:
                nodes.order = end
            self._place_order(incarnation)

    def _place_order(self, incarnation):
        nodes = incarnation.matcher
        if nodes.order is not None and not nodes.waiting and self._queued < self.card.params.match_queue - 1:
            rsn, nodes.order = nodes.order, None
            self._enter(incarnation, rsn, None, self._newest)

    def _enter(self, incarnation, rsn, psn, ticket, lag=0.0):
        self.card.loop.call_in(lag + self.card.timing.match, self._try_new, incarnation, rsn, psn, ticket)

    def _try_new(self, incarnation, rsn, psn, ticket):
        nodes = incarnation.matcher
        self._newest = max(self._newest, ticket)
        if nodes.waiting:
            self._queue(incarnation, rsn, psn)
        elif not self._try(incarnation, rsn, psn, new=True):
            self._queue(incarnation, rsn, psn, self._passing)
            self._missed(incarnation)

    def _queue(self, incarnation, rsn, psn, lag=0.0):
        incarnation.matcher.waiting.append((rsn, psn))
        self._wait(1, lag)
        self.card.counters["cache_misses"] += psn is not None

    def _wait(self, count, lag=0.0):
        """Add ``count`` waiting headers; count the cycles in which any header waits."""
        now = self.card.loop.now_ns
        if self._queued:
            self.card.counters["match_stall_cycles"] += round((now - self._stalled_since) / CYCLE_NS)
        else:
            now += QUEUED + lag
        self._queued += count
        self._stalled_since = now

    # ---------------------------------------------------------------------------------------- waiting headers

    def _node_came(self, incarnation):
        if incarnation.matcher.waiting:
            self.card.loop.call_in(self.card.timing.wake, self._wake, incarnation)

    def _wake(self, incarnation):
        """Try the waiting headers of a list again, in order."""
        nodes = incarnation.matcher
        nodes.woken = nodes.trying
        if not nodes.trying:
            nodes.trying = True
            self._try_waiting(incarnation)

    def _try_waiting(self, incarnation):
        nodes = incarnation.matcher
        nodes.trying = bool(nodes.waiting)
        if not nodes.waiting:
            return
        if self._try(incarnation, *nodes.waiting[0], new=False):
            nodes.waiting.popleft()
            self._wait(-1)
            self._place_order(incarnation)
            self.card.loop.call_in(TRY, self._try_waiting, incarnation)
        else:
            self._missed(incarnation)

    @property
    def _passing(self):
        """Time that the last tried header needed to pass nodes."""
        return CYCLE_NS + (self._passed - 1) * NEXT if self._passed else 0.0

    def _missed(self, incarnation):
        """Let the oldest header of a list wait after it has passed all nodes that it may."""
        if self._passed:
            incarnation.matcher.trying = True
            self.card.loop.call_in(self._passing, self._sleep, incarnation)
        else:
            self._sleep(incarnation)

    def _sleep(self, incarnation):
        """Let the oldest header of a list wait for another node, or for the retirement of the head."""
        nodes = incarnation.matcher
        if nodes.nodes and len(nodes.nodes) >= self._depth:
            nodes.trying = True
            head = nodes.nodes[0]
            self.card.loop.call_in(FORCED, self._force, incarnation, head)
            self.card.loop.call_in(TRY_AGAIN, self._try_waiting, incarnation)
        elif nodes.woken:
            nodes.woken, nodes.trying = False, True
            self.card.loop.call_in(TRY, self._try_waiting, incarnation)
        else:
            nodes.trying = False
            self.prefetcher.look(incarnation)

    # --------------------------------------------------------------------------------------------- matching

    @property
    def _depth(self):
        return max(1, self.card.registers["prefetch_depth"])

    def _try(self, incarnation, rsn, psn, new):
        """Match a header; return false if it must wait."""
        nodes, slack = incarnation.matcher, self.card.registers["retransmit_slack"]
        ahead = 0.0 if new else CYCLE_NS
        if psn is None:
            nodes.probe(rsn)
        else:
            nodes.pass_over(rsn, slack)
        self._pass_ended(nodes, psn, rsn, slack)
        self._passed = len(nodes.retired)
        self._leave(incarnation, PASSED - ahead)
        hit = psn is not None and nodes.holds(rsn)
        if not hit and not nodes.destroyed and nodes.waits(rsn) and (psn is not None or not nodes.nodes):
            return False
        if psn is not None:
            self.card.counters["cache_hits"] += hit and new
            self.card.receive_path.refuse_match(nodes.match(psn, rsn, slack))
            while nodes.retired:
                nodes.ended.append(nodes.retired.popleft())
                self.card.loop.call_in(ENDED - ahead, self._ripe, incarnation, nodes.ended[-1])
        return True

    @staticmethod
    def _pass_ended(nodes, psn, rsn, slack):
        """Move passed nodes that are already finished to the front of the retired nodes."""
        passed = [node for node in nodes.ended if (
            nodes.probed(node, rsn) if psn is None else nodes.passed(node, rsn, slack))]
        nodes.retired.extendleft(reversed(passed))
        for node in passed:
            nodes.ended.remove(node)

    def _ripe(self, incarnation, node):
        """Retire a finished node."""
        if node in incarnation.matcher.ended:
            incarnation.matcher.ended.remove(node)
            incarnation.matcher.retired.append(node)
            self._leave(incarnation, 0.0)

    def _force(self, incarnation, head=None):
        """Retire the head of a list; if ``head`` is given, only that node."""
        nodes = incarnation.matcher
        if nodes.nodes and head in (None, nodes.nodes[0]):
            nodes.force()
            self._leave(incarnation, 0.0)

    def _leave(self, incarnation, lag):
        """Report the nodes with an order to retire after ``lag``, and free their entries."""
        retired = incarnation.matcher.retired
        if retired:
            gone = self.card.loop.now_ns + lag + GONE
            self.prefetcher.left((node, gone + k * NEXT) for k, node in enumerate(retired))
            self.card.receive_path.retire(incarnation, lag, self._newest)
            self.prefetcher.look(incarnation, lag + GONE)

    def forget(self, incarnation):
        """Drop the nodes and waiting headers of a destroyed QP."""
        nodes = incarnation.matcher
        now = self.card.loop.now_ns
        self.prefetcher.left((node, now) for node in (*nodes.nodes, *nodes.ended))
        nodes.ended.clear()
        self.prefetcher.forget(incarnation)
        self._wait(-len(nodes.waiting))
        nodes.waiting.clear()
        nodes.nodes.clear()
        nodes.destroyed = True
