"""Monitor of the matcher with the lists of a few QPs, compared with the model."""

from collections import Counter, defaultdict, deque
from dataclasses import replace

from cocotb.triggers import RisingEdge

from weft.hdl.adamap.match.matcher import ListView
from weft.hdl.adamap.match.retire import LongReport
from weft.hdl.contract import abi
from weft.hdl.part.ticket import EXTENDED_TICKET_WIDTH
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSink
from weft.tb.test.hdl.adamap.matched_list import List, payload

LOOK_TO_JUDGED = 3      # cycles
SENT_TO_BUSY = 2
TICKETS = 1 << EXTENDED_TICKET_WIDTH
FIRST_TICKETS = (TICKETS // 2 - 60, TICKETS * 5 // 6, TICKETS - 60)     # the highest bit is set in some, and they wrap


class MatcherWatch:
    """Compares matched headers, retired nodes and reports with the model.

    Attributes
    ----------
    lists : dict of QPN to List
        Lists of existing QPs; ``rows`` has them by the low bits of the QPN.
    outstanding : dict of QPN to deque of Header
        Sent and, as far as the bench knows, not matched.
    seen : Counter
        Number of events.
    """

    def __init__(self, dut, rng, params):
        self.dut, self.rng, self.params = dut, rng, params
        self.lists, self.incarnations, self.rows = {}, {}, {}
        self.outstanding = defaultdict(deque)
        self.seen, self.now = Counter(), 0
        self.slack = self.depth = 1
        self.ticket = self.placed = self.placed_before = rng.choice(FIRST_TICKETS)      # newest, not truncated
        self.reports = StreamSink(dut, "o_report", dut.clk, rng=rng)
        self.untold = deque()               # (cycle, placed, newest ticket) of nodes that left and were not reported
        self.expected_reports = defaultdict(deque)      # (qpn, generation) -> reports that the model has not made yet
        self.tickets = deque([(0, self.ticket)])      # (cycle of the lookup, newest ticket matched until then)
        self.judged_at = Counter()          # qpn -> cycle
        self.came_at = 0                    # cycle of the last input of the matcher
        self.ordered = {}                   # (qpn, generation) -> RSN of an order that may not be executed yet

    def create(self, qpn, generation, rsn):
        one = List(qpn, generation, rsn)
        self.lists[qpn] = self.incarnations[qpn, generation] = self.rows[qpn % self.params.qps] = one
        return one

    async def follow(self):
        """Step the placed ticket to its first value, in steps that the matcher can follow."""
        for third in (1, 2, 3):
            self.dut.placed.value = self.placed * third // 3
            await RisingEdge(self.dut.clk)

    def sent(self, header):
        """Register a header as sent; return its payload."""
        self.came_at, self.ticket = self.now, max(self.ticket, header.ticket)
        self.outstanding[header.qpn].append(header)
        return payload(header)

    def not_matched(self, header):
        """Register a header for which the match queue had no space."""
        key, now = (header.qpn, header.generation), self.lists[header.qpn]
        self.came_at, self.ticket = self.now, max(self.ticket, header.ticket)
        seen = self.seen
        seen["order of a probe"] += header.probe
        seen["order of an earlier incarnation"] += header.generation != now.generation
        seen["order with slack"] += not header.probe and 1 < self.slack < 1 << 23
        seen["order after headers"] += any(not h.probe for h in self.outstanding[header.qpn])
        if (older := self.ordered.get(key)) is not None:
            seen["order goes further" if 0 < (header.rsn - older) % (1 << 24) < 1 << 23 else "order stays"] += 1
        self.ordered[key] = header.rsn
        seen["orders of three lists"] += len({qpn for qpn, _ in self.ordered}) >= 3
        self.outstanding[header.qpn].append(replace(header, probe=True, slack=None if header.probe else self.slack))

    def beyond_end(self, one):
        """Return True if an outstanding header is beyond the end of the list."""
        return any(header.beyond(one.next_rsn) for header in self.outstanding[one.qpn])

    async def watch(self):
        """Observe all outputs in every cycle."""
        dut, edge, past = self.dut, RisingEdge(self.dut.clk), deque(maxlen=1 + LOOK_TO_JUDGED)
        while True:
            await edge
            self.now += 1
            row = self.rows.get(int(dut.row_index.value))
            if int(dut.row_en.value) and row:
                dut.list.value = pack(ListView, live=row.live, generation=row.generation, more=bool(row.ahead))
            past.append((int(dut.looked_qpn.value), row and row.live and row.generation, self.now,
                         {qpn: one.left for qpn, one in self.lists.items()}))
            if int(dut.judged.value):
                reason = abi.Reason(int(dut.drop__reason.value)) if int(dut.drop__stb.value) else abi.Reason.OK
                self._judged(*past[0], reason)
            if int(dut.leaves.value):
                self._leaves(self.lists[int(dut.leaves_qpn.value)])
            if int(dut.i_control__valid.value) and int(dut.i_control__ready.value):
                assert not int(dut.judged.value) and not int(dut.leaves.value), "not between two headers"
            if int(dut.i_force__valid.value):
                self.came_at = self.now
            if int(dut.idle.value) and self.now - self.came_at > SENT_TO_BUSY:
                self.check_idle()
            for name in ("nodes_retired", "nodes_residue", "cache_hits", "cache_misses"):
                self.seen[name] += int(getattr(dut, f"count_{name}").value)
            self.placed_before = self.placed        # the value that the matcher can know
            if self.rng.random() < 0.05 or self.ticket - self.placed > 90:
                self.placed = max(self.placed, self.rng.randint(self.ticket - 60, self.ticket))
            dut.placed.value = self.placed % TICKETS
            while (report := self.reports.recv_nowait()) is not None:
                self._reported(int(report))

    def _judged(self, qpn, view, looked_at, left, reason):
        """Compare the outcome of the oldest header of a QP; earlier probes took effect."""
        header = self._next(qpn)
        self.judged_at[qpn] = self.now
        self.tickets.append((looked_at, max(self.tickets[-1][1], header.ticket)))
        want = abi.Reason.STALE_GENERATION
        self.seen["dead list"] += view is False
        if view is not False and view is not None and view == header.generation:
            one, gone = self.incarnations[qpn, header.generation], self.incarnations[qpn, header.generation].gone
            want = one.match(header, self.slack, self.depth, left[qpn])
            one.caused(header.ticket)
            self.seen["several left at once"] += one.gone - gone > 1
            self.compare(one)
        assert reason == want, f"cycle {self.now}: {header} ends with {reason.name}, expected {want.name}"
        self.seen[reason.name] += 1

    def _next(self, qpn):
        while True:
            header = self.outstanding[qpn].popleft()
            if not header.probe:
                return header
            self._probed(header)

    def _probed(self, header):
        one = self.incarnations.get((header.qpn, header.generation))
        if one is None:
            return
        gone = one.gone
        if header.slack is None:
            one.model.probe(header.rsn)
        else:
            one.model.not_matched(header.rsn, header.slack)
        one.caused(header.ticket)
        self.seen["retired by a probe" if header.slack is None else "retired by an order"] += one.gone > gone
        self.compare(one)

    def early_probes(self, qpn):
        """Apply probes that follow no header, unless their effect depends on nodes that are not linked yet.

        Returns
        -------
        bool
            No such probe is left.
        """
        headers = self.outstanding[qpn]
        while headers and headers[0].probe:
            if headers[0].beyond(self.lists[qpn].next_rsn):
                return False
            self._probed(headers.popleft())
        return True

    def check_idle(self):
        """Check that no list has outstanding work."""
        for qpn, one in self.lists.items():
            if one.live and self.early_probes(qpn):
                assert not self.outstanding[qpn] and one.left == one.gone, f"idle, but not done with QP {qpn}"

    def finish_probes(self):
        """Apply the remaining probes when no header is outstanding."""
        for qpn, headers in self.outstanding.items():
            while headers:
                assert headers[0].probe, f"{headers[0]} was not judged"
                self._probed(headers.popleft())
            assert not headers, qpn

    def _leaves(self, one):
        one.cached.popleft()
        one.left += 1
        self.untold.append((self.now, self.placed_before, max(self.ticket, self.placed)))

    def _reported(self, value):
        long = unpack(LongReport, value)
        report = abi.REPORT_RETIRE.unpack(long.entry.to_bytes(64, "little"))
        at, placed, newest = self.untold.popleft()
        while len(self.tickets) > 1 and self.tickets[1][0] <= at:
            self.tickets.popleft()
        oldest = self.tickets[0][1]
        ticket = newest - (newest - long.ticket) % TICKETS
        assert max(oldest, placed) <= ticket, (long.ticket, oldest, placed, newest)
        self.seen["ticket of a header"] += ticket > placed
        key = report.qpn, report.generation
        self.expected_reports[key].append((report, ticket))
        self.compare(self.incarnations[key])

    def compare(self, one):
        """Compare reports with the nodes that the model retired."""
        expected_reports = self.expected_reports[one.qpn, one.generation]
        while expected_reports and one.model.retired:
            (report, ticket), node = expected_reports.popleft(), one.model.retired.popleft()
            want = abi.REPORT_RETIRE.unpack(abi.REPORT_RETIRE.pack(
                kind=abi.ReportKind.RETIRE, line=node.line, qpn=one.qpn, generation=one.generation,
                residue=node.left, rsn=node.rsn, next_rsn=node.next_rsn, open=node.open))
            assert report == want, f"{report}, expected {want}"
            assert ticket >= one.causes.popleft(), "a node left before the packet that caused it"
            self.seen["RSNs wrap"] += node.next_rsn % (1 << 24) < node.count
            self.seen["retired", node.encoding, "with residue" if node.left else "finished"] += 1

    def check_settled(self):
        """Check, when the matcher is idle, that exactly the nodes retired by the model were reported."""
        self.finish_probes()
        self.ordered.clear()
        assert not self.untold
        for (qpn, generation), one in self.incarnations.items():
            assert not self.expected_reports[qpn, generation], "a node left that should not have"
            if self.lists.get(qpn) is one:
                assert not one.model.retired and one.left == one.gone, "a node did not leave"
        retired = {k: n for k, n in self.seen.items() if isinstance(k, tuple) and k[0] == "retired"}
        assert self.seen["nodes_retired"] == sum(retired.values())
        assert self.seen["nodes_residue"] == sum(n for k, n in retired.items() if k[2] == "with residue")
