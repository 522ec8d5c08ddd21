"""Event loop of an open card: takes status, reports, frames and time; issues work and doorbells."""

import collections
import contextlib
from dataclasses import replace

from weft.hdl.contract import abi, wire

from ..device.bringup import come_to_rest
from ..device.capabilities import write_register
from ..device.health import DeviceFatal, Watchdog
from ..protocol.arp import is_arp
from ..queue.command import CommandQueue
from ..queue.control_frames import parse_control
from ..queue.host_qpns import HostQpns
from ..queue.meta_report import ReportWorker
from ..queue.ring import PHASE, CardToHostRing, HostToCardRing, rings_with_entries
from ..queue.simple_nic import SimpleNic
from ..queue.transmit_turns import SEND_CONS, TransmitTurns, enough_bytes
from ..queue.words import unpack_status
from ..terms.enums import WCStatus
from ..terms.errors import QueueFull, TimedOut
from .card_lock import CardLock
from .loopback import Loopback
from .neighbours import Neighbours
from .qp_table import QpTable
from .table_mirror import TableMirror
from .time_wait import TimeWait

Ring = abi.Ring
_NAME = {opcode: opcode.name for opcode in wire.Opcode}
SHARED_WAIT_NS = 50_000     # polling interval of a thread while another one waits for the card


class CardEngine:
    """Rings of a card and their contents, for all its QPs.

    Parameters
    ----------
    device : Device
    config : ContextConfig
    mac, ip : int
        Addresses of the card.
    max_qp : int
        Number of QPs of the card.

    Attributes
    ----------
    rings : dict of Ring
    status : DmaBuffer
        Status block.
    nic : SimpleNic
    commands : CommandQueue
    host_qpns : HostQpns
    qps : QpTable
        Of :class:`~weft.driver.engine.qp_engine.QpEngine`.
    reports : ReportWorker
    lender : MailboxMemory
        Memory for operations; the owner of the registered memory sets it.
    time_wait : TimeWait
    paced : PacedTurns
        Use of the card's pacer.
    neighbours : Neighbours
    lock : CardLock
    loopback : Loopback
        Connections between QPs of this card.
    tables : TableMirror
    balancers : list of callable(now)
        Called in every round. Each returns the latest time of its next call, or None.
    raw_frame_handlers : list of callable(frame, entry)
        Called with every raw frame that is not a control frame of a QP.
    services : list
        Protocols that run beside the QPs. Each has ``on_frame(frame, entry)`` for the same frames, ``progress(now)``,
        which returns true if something happened, ``deadline``, ``outstanding``, and ``forget()``, which is called after
        a reset of the card.
    counts : Counter
        Control frames sent, by opcode; probes after a time-out; changes of the path of a QP; received loss reports and
        RNR NAKs; raw frames; reports and control frames of unknown peers.
    fatal_handlers : list of callable(reason)
        Called when the card fails, before the pending operations end.
    fatal : str or None
        Reason for which the card is unusable until it is reset.
    marked : set
        QPs whose congestion control has marks as its signal.
    stopped : bool
        Set by a handler: the card has no outstanding access, so memory that it used may be freed.
    """

    def __init__(self, device, config, *, mac, ip, max_qp, inline_bytes, pace_descriptors):
        self.device, self.config, self.mac, self.ip = device, config, mac, ip
        self.inline_bytes = inline_bytes
        self.rings = {
            r: (HostToCardRing if r in abi.HOST_TO_CARD else CardToHostRing)(device, r, config.log2(r)) for r in Ring
        }
        self._to_host = [self.rings[ring] for ring in abi.CARD_TO_HOST]
        self.status = device.alloc(abi.BLOCK_BYTES, align=abi.BLOCK_BYTES)
        self._status_view = self.status.view(0, abi.BLOCK_BYTES)
        self._status_taken = None      # last contents that were processed
        self._around = (b"", b"")      # its bytes before and after the index of the SEND ring
        self._round_due, self._last_cons = 0, None     # latest time of the next round; see TransmitTurns
        self.nic = SimpleNic(device, self.rings[Ring.NIC_TX], self.rings[Ring.NIC_RX], slot_log2=config.nic_slot_log2,
                             inline=inline_bytes > 0)
        self.host_qpns = HostQpns(device, taken=lambda is_host: any(map(is_host, self.qps.numbers)))
        self.qps = QpTable(max_qp, config.random, reserved=self.host_qpns)
        self.reports = ReportWorker(self.rings[Ring.META_REPORT], self.qps.find)
        self.commands = CommandQueue(device, self.rings[Ring.COMMAND], self.rings[Ring.RESPONSE],
                                     timeout_ns=config.command_timeout_ns, drain=self._while_waiting, fail=self.fail,
                                     card_cons=lambda: unpack_status(self.status.read(0, abi.BLOCK_BYTES)).command_cons)
        self.lender = None
        self.balancers, self.raw_frame_handlers, self.fatal_handlers, self.services = [], [], [], []
        self.fatal, self.stopped, self.marked = None, False, set()
        self.listeners = 0      # programs that wait for an asynchronous event, such as a failure of the card
        self._watch = Watchdog(device, config.silence_ns)
        self.counts = collections.Counter()
        self.lock, self._waiting = CardLock(device), 0
        self.tables, self.loopback = TableMirror(self.qps.index_bits), Loopback(self)
        self.commands.observers.append(self.tables.on_command)
        self.commands.pause = self._pause
        self.time_wait = TimeWait(self, min(config.time_wait_qps, max_qp // 4))
        self.neighbours = Neighbours(mac, ip, send=self._send_arp, found=self._neighbour_found,
                                     missing=self._neighbour_missing)
        self._turns = TransmitTurns(self.rings, self.qps.watch, enough_bytes=enough_bytes(config.tx_poll_ns),
                                    pace_descriptors=pace_descriptors)
        self.paced = self._turns.paced
        # Every request for work is in one of these.
        self._unanswered = self.commands.unanswered
        self._asked = (self.qps.active, self.nic.queue, self.services, self.loopback.frames, self.neighbours.asked,
                       *self._unanswered)

    # ------------------------------------------------------------------------------ start and end

    def start(self):
        """Configure the rings of a card that is out of reset, and start the host's QPNs and the Simple NIC."""
        self._watch.received(self.device.now_ns())
        self.nic.start()
        self.host_qpns.start()
        for ring in self.rings.values():
            ring.enable()

    def forget(self, status=WCStatus.WR_FLUSH_ERR):
        """Clear all state after a reset of the card, which has no QP any more. Nothing is in flight.

        The oldest request of each QP completes with ``status``.
        """
        self.fatal, self.stopped, self.commands.fatal = None, False, None
        self.time_wait.forget()
        for qp in self.qps:
            qp.contain(qp.on_card_reset, status)
            self.qps.remove(qp)
        self.lender.windows.forget()
        self._turns.clear()
        self.marked.clear()
        self.status.write(0, bytes(abi.BLOCK_BYTES))
        self._status_taken, self._round_due = None, 0
        for ring in self.rings.values():
            ring.clear()
        self.commands.forget()
        self.reports.forget()
        self.nic.forget()
        self.neighbours.forget()
        self.tables.forget()
        self.loopback.forget()
        for service in self.services:
            service.forget()

    def fail(self, reason):
        """Mark the card as failed: all pending operations end, and no new one begins until a reset."""
        for handler in self.fatal_handlers:
            handler(reason)
        stopped = self.stopped
        self.forget(WCStatus.FATAL_ERR)
        self.fatal, self.stopped, self.commands.fatal = reason, stopped, reason

    def _look_after_card(self):
        """Fail the card if it was silent for too long and its status shows an error. A card may be silent if nothing is
        expected of it: the time begins again then."""
        if not self._awaited:
            self._watch.received(self.device.now_ns())
        elif reason := self._watch.look():
            self.fail(reason)

    @property
    def _awaited(self):
        return self.fatal is None and bool(
            len(self.qps) > len(self.time_wait) or self.commands.waiting or self.listeners)

    def _while_waiting(self):
        """Collect reports and check the card; called during the wait for a command's response."""
        if self.fatal is None:
            self.reports.collect()
            self._look_after_card()

    def close(self):
        """Disable the rings of a disabled card and free their memory."""
        write_register(self.device, "status_block", 0)     # resetting the rings updates the status block
        for ring in self.rings.values():
            ring.disable()
        come_to_rest(self.device)
        for ring in self.rings.values():
            ring.close()
        self.nic.close()
        self._status_view = bytes(abi.BLOCK_BYTES)
        self.device.free(self.status)

    # ----------------------------------------------------------------------------------- progress

    def progress(self):
        """Run one round without waiting, unless it would have no effect. Return true if something happened."""
        return False if self.rests() else self.round()

    def rests(self):
        """Return true if a round would have no effect.

        That is the case if no report, frame or response arrived, no work was requested since the last round, and no
        retired descriptor needs attention (see ``TransmitTurns.last_cons``).

        Only reads memory, so it may be called without the lock.
        """
        for ring in self._to_host:
            head, phase = ring.ahead
            if head[0] & PHASE == phase:
                return False
        for asked in self._asked:
            if asked:
                return False
        status, taken = bytes(self._status_view), self._status_taken
        if status != taken:
            last, (before, after) = self._last_cons, self._around
            if (last is None or taken is None or status[SEND_CONS] == last
                    or not (status.startswith(before) and status.endswith(after))):
                return False
        return self.device.now_ns() < self._round_due

    def round(self):
        """Run one round, unless the card failed. Return true if something happened."""
        if self.fatal is not None:
            return False
        now, entries = self.device.now_ns(), rings_with_entries(self._to_host)
        busy = self._take_status(now)
        if (entries or self.reports.collected or any(self._unanswered)) and self._take_reports(entries, now):
            busy = True
        if busy:
            self._watch.received(now)
        elif now >= self._watch.due:
            self._look_after_card()
        if self.fatal is not None:
            return True
        if self.loopback.frames:
            self.loopback.progress(now)
        qps = self.qps
        if qps.active or qps.starved or qps.first_time <= now:
            for qp in qps.due(now):
                qp.contain(self._progress_qp, qp, now)
        waiting = self._turns.fill()
        if self.neighbours.asked:
            self.neighbours.progress(now)
        for service in self.services:
            if service.progress(now):
                busy = True
        if self.nic.queue:
            self.nic.flush()
        due = self._watch.due
        for balance in self.balancers:
            if (at := balance(now)) is not None and at < due:
                due = at
        self._last_cons = None if waiting else self._turns.last_cons
        self._round_due = now if self.reports.collected or qps.starved else min(due, qps.first_time)
        return busy or bool(qps.active or self.loopback.frames)

    def _progress_qp(self, qp, now):
        """Run the round of one QP, and register its work with the loopback or the transmit scheduler."""
        qp.progress(now)
        if qp.looped:
            self.loopback.carry(qp, now)
        elif qp.sender is None or qp.sender.at_rest:
            return
        elif qp.path.mac is not None:
            self._turns.offer(qp)
        elif qp.sender.has_work:
            self.neighbours.want(qp.path.ip, now)

    def _take_reports(self, entries, now):
        """Process responses, reports and frames of the rings in ``entries``. Return true if there were any."""
        busy = (any(self._unanswered) or self.rings[Ring.RESPONSE] in entries) and self.commands.progress()
        if (self.reports.collected or self.reports.ring in entries) and self.reports.progress():
            busy = True
        if self.nic.rx in entries:
            for entry, frame in self.nic.poll():
                busy = True
                self._take_frame(entry, frame, now)
        return busy

    def _take_status(self, now):
        """Process the status block if the card wrote it since the last call. Return true if it held progress."""
        data = bytes(self._status_view)
        if data == self._status_taken:
            return False
        busy = self._turns.advance(unpack_status(data), now)
        self._status_taken, self._around = data, (data[:SEND_CONS.start], data[SEND_CONS.stop:])
        return busy

    def _take_frame(self, entry, frame, now):
        control = parse_control(frame) if entry.roce else None
        qp = self.qps.find_incarnation(control.dest_qp) if control else None
        if qp is not None:
            control.came_ns = entry.time_ns
            qp.on_control(control, now)
            return
        self.counts["raw_frames"] += 1
        if is_arp(frame):
            self.neighbours.on_frame(frame)
        for handler in (*self.raw_frame_handlers, *(service.on_frame for service in self.services)):
            handler(frame, entry)

    @property
    def outstanding(self):
        """True if send requests are incomplete."""
        return any(qp.outstanding for qp in self.qps) or any(service.outstanding for service in self.services)

    @property
    def transmitting(self):
        """True if descriptors are in the card or wait for ring space. No interrupt announces their retirement."""
        return self._turns.busy or self.nic.busy

    def wait(self, timeout_ns):
        """Sleep until the card has an event, a timer is due or the time is over, at least ``device.shortest_wait_ns``.
        """
        timeout_ns = self.before_wait(timeout_ns)
        if self._waiting:      # the event may be for another thread
            timeout_ns = min(timeout_ns, SHARED_WAIT_NS)
        self._waiting += 1
        try:
            return self._pause(max(self.device.shortest_wait_ns, timeout_ns))
        finally:
            self._waiting -= 1

    def before_wait(self, timeout_ns):
        """Return how long a wait for the card may last, at most ``timeout_ns``: until a timer is due, or a poll.

        Interrupts are armed only for a wait of more than ``tx_poll_ns``: for a shorter one, polling saves the register
        write. With QPs that react to marks they are armed for every wait, unless an end of work is polled for.
        """
        now = self.device.now_ns()
        poll_ns = self.config.tx_poll_ns
        for timed in (self.qps, self.neighbours, *self.services):
            if (due := timed.deadline) is not None and due - now < timeout_ns:
                timeout_ns = due - now
        if timeout_ns > poll_ns and self.transmitting:
            timeout_ns = poll_ns
        if self._awaited:
            timeout_ns = min(timeout_ns, self._watch.due - now)
        if (timeout_ns > poll_ns or self.marked and not self._turns.unannounced) and self.fatal is None:
            for ring in abi.CARD_TO_HOST:
                self.rings[ring].arm()
        return timeout_ns

    def _pause(self, timeout_ns):
        """Wait for the card without the lock, so that other threads may use the driver."""
        depth = self.lock.give_up()
        try:
            return self.device.wait(timeout_ns)
        finally:
            self.lock.take_back(depth)

    def run_until(self, condition, timeout_ns=None):
        """Make progress until ``condition()`` holds.

        Raises
        ------
        TimeoutError
        DeviceFatal
            If the card failed.
        """
        deadline = None if timeout_ns is None else self.device.now_ns() + timeout_ns
        with self.lock:
            while True:
                now = self.device.now_ns()      # before the look: in between, the process may stand still
                busy = self.progress()
                if condition():
                    return
                if self.fatal is not None:
                    raise DeviceFatal(self.fatal)
                if deadline is not None and now >= deadline:
                    raise TimedOut(f"nothing came within {timeout_ns} ns")
                if not busy:
                    self.wait(1_000_000 if deadline is None else deadline - now)

    @contextlib.contextmanager
    def giving_up(self):
        """Ignore a failure of the card in the block, which frees resources: a stopped card no longer uses them.

        Raises
        ------
        DeviceFatal
            If the card failed and could not be stopped.
        """
        try:
            yield
        except DeviceFatal:
            if not self.stopped:
                raise

    # ----------------------------------------------------------------------------------- for a QP

    def mark_active(self, qp):
        """Schedule ``qp`` for the next :meth:`progress`."""
        self.qps.mark_active(qp)

    def find_header_template(self, qp):
        """Resolve the peer's MAC address of ``qp``. Until it is known, work waits and control frames are dropped."""
        mac = self.neighbours.find(qp.path.ip)
        if mac is None:
            self.neighbours.want(qp.path.ip, self.device.now_ns())
        else:
            self._neighbour_found(qp.path.ip, mac)

    def _neighbour_found(self, ip, mac):
        for qp in self.qps:
            if qp.path.ip == ip and qp.path.mac != mac:
                qp.path = replace(qp.path, mac=mac)
                self.mark_active(qp)

    def _neighbour_missing(self, ip):
        for qp in self.qps:
            if qp.path.ip == ip and qp.path.mac is None and qp.sender is not None and not qp.sender.idle:
                qp.contain(qp.fail, WCStatus.RETRY_EXC_ERR)

    def _send_arp(self, frame):
        try:
            self.nic.send(frame, self.neighbours)
        except QueueFull:
            self.counts["arp_frames_dropped"] += 1

    def drain_transmit(self, qp):
        """Wait until no descriptor of ``qp`` is in the card, and its peer can access no memory of its operations.

        Those of a paced QP may remain in the pool, which the card discards before it destroys the QP.

        Raises
        ------
        TimeoutError
            If that lasts longer than the response to a command may.
        """
        timeout_ns = self.config.command_timeout_ns
        qp.leaving = True
        qp.operations.abandon()
        if qp.sender is not None:
            qp.sender.abandon()
            self.run_until(lambda: not qp.sender.in_rings, timeout_ns)
        qp.operations.close()
        if not qp.operations.closed:
            self.run_until(lambda: qp.operations.closed, timeout_ns)

    def stop_sending(self, qp):
        """Remove ``qp`` from the transmit scheduler."""
        self._turns.remove(qp)

    def remove_qp(self, qp):
        """Remove ``qp``, which the card no longer has."""
        self.qps.remove(qp)
        self.marked.discard(qp)
        self.stop_sending(qp)
        self.paced.discarded(qp)
        self.loopback.forget(qp)

    def send_control(self, qp, frame):
        """Queue a control frame of a QP, or drop it if the queue is full or the peer is unresolved: any may be lost.

        Notifications of congestion leave at once, and all control frames of a QP that reacts to them: one that the card
        must read would delay the next ones.
        """
        if qp.looped:
            self.loopback.send_control(qp, frame)
            self.counts[_NAME[frame.opcode]] += 1
            return
        if qp.path.mac is None:
            self.counts["control_frames_dropped"] += 1
            self.neighbours.want(qp.path.ip, self.device.now_ns())
            return
        try:
            self.nic.send(qp.control_frame(frame), qp, at_once=frame.opcode is wire.Opcode.CNP or qp.ect)
            self.counts[_NAME[frame.opcode]] += 1
        except BufferError:
            self.counts["control_frames_dropped"] += 1
