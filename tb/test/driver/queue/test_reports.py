"""Reports: polled, kept and delivered in spite of errors, floods and slow readers."""

import pytest

from weft.driver.queue.meta_report import ReportWorker
from weft.driver.queue.ring import CardToHostRing
from weft.driver.terms.enums import AccessFlag, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.mr import MR
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair

COUNT = 200   # writes of which the other host reads no report


class Entries:
    """Ring with ``count`` reports of a kind, with consecutive QPNs from 0."""

    def __init__(self, count, kind=abi.ReportKind.MESSAGE_END, batch=4):
        self.entries = [abi.REPORT_EVENT.pack(kind=kind, qpn=n % 256) for n in range(count)]
        self.batch = batch

    def poll(self):
        taken, self.entries = self.entries[: self.batch], self.entries[self.batch :]
        return taken

    def release(self, at_once=False):
        pass


class Log:
    """QP of all reports, which takes every report except one."""

    def __init__(self, refused=None):
        self.seen, self.refused = [], refused

    def on_report(self, _, report):
        if report.qpn == self.refused:
            raise RuntimeError(f"report {report.qpn}")
        self.seen.append(report.qpn)


def test_an_exception_loses_no_other_report():
    log = Log(refused=1)
    worker = ReportWorker(Entries(10), lambda *_: log)
    with pytest.raises(RuntimeError, match="report 1"):
        worker.progress()
    assert log.seen == [0, *range(2, 10)] and worker.counts["failed"] == 1
    assert not worker.progress()


def test_round_is_bounded():
    log = Log()
    worker = ReportWorker(Entries(2 * ReportWorker.ROUND_MAX), lambda *_: log)
    assert worker.progress() and len(log.seen) == ReportWorker.ROUND_MAX
    assert worker.progress() and len(log.seen) == 2 * ReportWorker.ROUND_MAX
    assert not worker.progress()


def test_collected_reports_are_bounded_and_in_order(monkeypatch):
    monkeypatch.setattr(ReportWorker, "COLLECTED_MAX", 1_000)
    log, most = Log(), 1_000
    ring = Entries(most + 100, abi.ReportKind.ERROR, batch=100)
    worker = ReportWorker(ring, lambda *_: log)
    worker.collect()
    assert not ring.entries and 0 < worker.counts["errors_dropped"] <= 200
    ring.entries = Entries(3 * most).entries
    worker.collect()
    assert len(ring.entries) > most, "others are left where they are"
    while worker.progress():
        pass
    errors = len(log.seen) - 3 * most
    assert most <= errors < most + 100
    assert log.seen == [n % 256 for n in (*range(errors), *range(3 * most))]


def test_entry_is_read_after_its_phase():
    """The card writes an entry while the host reads it: first the bytes after the phase, then the phase."""
    device = FunctionalDevice(EventLoop())
    ring = CardToHostRing(device, abi.Ring.META_REPORT, 2)
    read, torn = ring.buffer.read, bytes([1]) + bytes(63)

    def late(offset, length):
        data = read(offset, length)
        if offset == 0 and length > 64:      # the phase is new, the rest is old
            ring.buffer.write(0, bytes([1]) + bytes([7] * 63))
            data = torn + data[64:]
        return data

    ring.buffer.write(0, torn)
    ring.buffer.read = late
    assert ring.poll() == [bytes([1]) + bytes([7] * 63)]


class NeedsSpace:
    """Functional card that executes no destroy command before all its reports are in host memory."""

    def __init__(self, card):
        self.card, self.peek, self.waited = card, card.rings.peek, 0
        card.rings.peek = self

    def __call__(self, ring):
        entry = self.peek(ring)
        if ring is abi.Ring.COMMAND and entry is not None and self.card.backlog:
            opcode = abi.COMMAND.unpack(entry).opcode
            if opcode in (abi.CommandOpcode.MR_DESTROY, abi.CommandOpcode.QP_DESTROY):
                self.waited += 1
                return None
        return entry


def test_close_frees_space_for_pending_reports():
    """No report is lost: every write is acknowledged."""
    pair = make_pair(ContextConfig(ring_log2={abi.Ring.META_REPORT: 2}), seed=3)
    ends = make_endpoints(pair, 4_096, window=COUNT)
    other = MR(ends[1].pd, 4_096, AccessFlag.LOCAL_WRITE)
    card = NeedsSpace(pair.devices[1].card)
    for n in range(COUNT):
        wr = SendWR(wr_id=n, sg=[SGE(ends[0].mr.buf, 8, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
        wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
        ends[0].qps[0].post_send(wr)
    pair.contexts[0].run_until(lambda: not ends[0].qps[0].sender.in_card, 10**8)   # the other host does not progress
    pair.loop.run(pair.loop.now_ns + 10_000)
    assert pair.devices[1].card.backlog
    other.close()
    assert card.waited and not pair.devices[1].card.backlog
    finished = []

    def sending():
        got = []
        while len(got) < COUNT:
            got += ends[0].cq.wait(COUNT, 10**8)
        finished.append(True)
        return got

    def receiving():
        while not finished:
            pair.contexts[1].progress()
            pair.contexts[1].wait(20_000)

    assert {wc.status for wc in pair.run(sending, receiving)[0]} == {WCStatus.SUCCESS}
    close_and_check(pair, ends)
