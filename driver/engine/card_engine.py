"""What moves everything on an open card: status, reports, frames and time in; work and doorbells out."""

import collections
import contextlib
from dataclasses import replace

from weft.hdl.contract import abi, wire

from ..device.bringup import come_to_rest
from ..device.capabilities import write_register
from ..device.health import DeviceFatal, SilenceWatch
from ..protocol.arp import is_arp
from ..queue.command import CommandQueue
from ..queue.control_frames import parse_control
from ..queue.host_qpns import HostQpns
from ..queue.meta_report import ReportWorker
from ..queue.ring import PHASE, CardToHostRing, HostToCardRing, with_news
from ..queue.simple_nic import SimpleNic
from ..queue.status import unpack_status
from ..queue.transmit_turns import SEND_CONS, TransmitTurns, enough_bytes
from ..terms.enums import WCStatus
from ..terms.errors import QueueFull, TimedOut
from .card_lock import CardLock
from .departed import Departed
from .loopback import Loopback
from .neighbours import Neighbours
from .qp_table import QpTable
from .table_mirror import TableMirror

Ring = abi.Ring
_NAME = {opcode: opcode.name for opcode in wire.Opcode}
SHARED_WAIT_NS = 50_000     # at most between two looks of a thread, when another one sleeps until the card has news


class CardEngine:
    """The rings of a card and what goes through them, for all its QPs.

    Parameters
    ----------
    device : Device
    config : ContextConfig
    mac, ip : int
        Addresses of the card.
    max_qp : int
        QPs it can have.

    Attributes
    ----------
    rings : dict of Ring
    status : DmaBuffer
        The status block.
    nic : SimpleNic
    commands : CommandQueue
    host_qpns : HostQpns
    qps : QpTable
        Of :class:`~weft.driver.engine.qp_engine.QpEngine`.
    reports : ReportWorker
    lender : Lender
        Memory for operations, set by whoever knows what is registered.
    departed : Departed
    neighbours : Neighbours
    lock : CardLock
    loopback : Loopback
        Carries what QPs send to QPs of the same card.
    tables : TableMirror
    balancers : list of callable(now)
        Called in every round; each says when it wants the next one at the latest, or None.
    raw_frame_handlers : list of callable(frame, entry)
        Get the raw frames that are no control frames of a QP.
    services : list
        What runs beside the QPs: each has ``on_frame(frame, entry)`` for the same frames, ``progress(now)``,
        ``deadline``, and ``forget()`` for when the card was reset.
    counts : Counter
        Control frames sent by opcode, raw frames, and what came of strangers.
    fatal_handlers : list of callable(reason)
        Called when the card fails, before everything that waits for it ends.
    fatal : str or None
        Why the card is of no use until it is reset.
    stopped : bool
        Set by a handler: nothing of the card is under way any more, so what it knew of may be given back.
    """

    def __init__(self, device, config, *, mac, ip, max_qp, inline_bytes):
        self.device, self.config, self.mac, self.ip = device, config, mac, ip
        self.inline_bytes = inline_bytes
        self.rings = {
            r: (HostToCardRing if r in abi.HOST_TO_CARD else CardToHostRing)(device, r, config.log2(r)) for r in Ring
        }
        self._to_host = [self.rings[ring] for ring in abi.CARD_TO_HOST]
        self.status = device.alloc(abi.BLOCK_BYTES, align=abi.BLOCK_BYTES)
        self._status_view = self.status.view(0, abi.BLOCK_BYTES)
        self._status_taken = None      # as the card wrote it
        self._around = (b"", b"")      # the same before and behind the index of the SEND ring
        self._round_due, self._last_cons = 0, None     # when there is a round at the latest; see TransmitTurns
        self.nic = SimpleNic(device, self.rings[Ring.NIC_TX], self.rings[Ring.NIC_RX], slot_log2=config.nic_slot_log2)
        self.host_qpns = HostQpns(device, taken=lambda is_host: any(map(is_host, self.qps.numbers)))
        self.qps = QpTable(max_qp, config.random, reserved=self.host_qpns)
        self.reports = ReportWorker(self.rings[Ring.META_REPORT], self.qps.find)
        self.commands = CommandQueue(device, self.rings[Ring.COMMAND], self.rings[Ring.RESPONSE],
                                     drain=self._while_waiting, fail=self.fail,
                                     card_cons=lambda: unpack_status(self.status.read(0, abi.BLOCK_BYTES)).command_cons)
        self.lender = None
        self.balancers, self.raw_frame_handlers, self.fatal_handlers, self.services = [], [], [], []
        self.fatal, self.stopped = None, False
        self.listeners = 0      # programs that wait for an asynchronous event: the card's failure would be one
        self._watch = SilenceWatch(device, config.silence_ns)
        self.counts = collections.Counter()
        self.lock, self._waiting = CardLock(device), 0
        self.tables, self.loopback = TableMirror(self.qps.index_bits), Loopback(self)
        self.commands.observers.append(self.tables.on_command)
        self.commands.pause = self._pause
        self.departed = Departed(self, min(config.departed_qps, max_qp // 4))
        self.neighbours = Neighbours(mac, ip, send=self._send_arp, found=self._neighbour_found,
                                     missing=self._neighbour_missing)
        self._turns = TransmitTurns(self.rings, self.qps.watch, enough_bytes=enough_bytes(config.tx_poll_ns))
        # Whoever asks for something puts it into one of these.
        self._unanswered = self.commands.unanswered
        self._asked = (self.qps.active, self.nic.queue, self.services, self.loopback.frames, self.neighbours.asked,
                       *self._unanswered)

    # ------------------------------------------------------------------------------ start and end

    def start(self):
        """Tell a card that is out of reset of its rings."""
        self._watch.heard(self.device.now_ns())
        self.nic.start()
        self.host_qpns.start()
        for ring in self.rings.values():
            ring.enable()

    def forget(self, status=WCStatus.WR_FLUSH_ERR):
        """The card was reset: it knows no QP any more, and nothing is on its way. The oldest request of each QP ends
        with ``status``."""
        self.fatal, self.stopped, self.commands.fatal = None, False, None
        self.departed.forget()
        for qp in self.qps:
            qp.on_card_reset(status)
            self.qps.remove(qp)
        self.lender.windows.forget()
        self._turns.clear()
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
        """The card is of no use any more: everything that waits for it ends, and nothing new begins until a reset."""
        for handler in self.fatal_handlers:
            handler(reason)
        stopped = self.stopped
        self.forget(WCStatus.FATAL_ERR)
        self.fatal, self.stopped, self.commands.fatal = reason, stopped, reason

    def _look_after_card(self):
        """Fail if it was silent for long and its status speaks against it."""
        if self._awaited and (reason := self._watch.look()):
            self.fail(reason)

    @property
    def _awaited(self):
        return self.fatal is None and bool(
            len(self.qps) > len(self.departed) or self.commands.waiting or self.listeners)

    def _while_waiting(self):
        """What a wait for a command's answer asks for."""
        if self.fatal is None:
            self.reports.collect()
            self._look_after_card()

    def close(self):
        """Stop the rings of a disabled card and give their memory back."""
        write_register(self.device, "status_block", 0)     # it tells that the rings are at their beginning again
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
        """One round of everything, without waiting, unless it would change nothing; true if something happened."""
        return False if self.rests() else self.round()

    def rests(self):
        """A round would change nothing: nothing came, nobody asked for anything since the last one, and if the card
        finished descriptors, others are under way that matter as well.

        It only looks at memory, so that whoever has nothing else to do may ask without the lock.
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
            last, (before, behind) = self._last_cons, self._around
            if (last is None or taken is None or status[SEND_CONS] == last
                    or not (status.startswith(before) and status.endswith(behind))):
                return False
        return self.device.now_ns() < self._round_due

    def round(self):
        """One round of everything that is not fatal; true if something happened."""
        if self.fatal is not None:
            return False
        now, news = self.device.now_ns(), with_news(self._to_host)
        busy = self._take_status(now)
        if (news or self.reports.collected or any(self._unanswered)) and self._take_news(news, now):
            busy = True
        if busy:
            self._watch.heard(now)
        elif now >= self._watch.due:
            self._look_after_card()
        if self.fatal is not None:
            return True
        if self.loopback.frames:
            self.loopback.progress(now)
        qps = self.qps
        if qps.active or qps.starved or qps.first_time <= now:
            for qp in qps.due(now):
                self._progress_qp(qp, now)
        waiting = self._turns.fill()
        if self.neighbours.asked:
            self.neighbours.progress(now)
        for service in self.services:
            service.progress(now)
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
        """The round of one QP, and who hands over what it has to send."""
        qp.progress(now)
        if qp.looped:
            self.loopback.carry(qp, now)
        elif qp.sender is None or qp.sender.at_rest:
            return
        elif qp.path.mac is not None:
            self._turns.offer(qp)
        elif qp.sender.has_work:
            self.neighbours.want(qp.path.ip, now)

    def _take_news(self, news, now):
        """Answers, reports and frames of the rings that have some; true if there were any."""
        busy = (any(self._unanswered) or self.rings[Ring.RESPONSE] in news) and self.commands.progress()
        if (self.reports.collected or self.reports.ring in news) and self.reports.progress():
            busy = True
        if self.nic.rx in news:
            for entry, frame in self.nic.poll():
                busy = True
                self._take_frame(entry, frame, now)
        return busy

    def _take_status(self, now):
        """Take back what the card finished, if it wrote its status since the last time; true if there was something."""
        data = bytes(self._status_view)
        if data == self._status_taken:
            return False
        busy = self._turns.advance(unpack_status(data), now)
        self._status_taken, self._around = data, (data[:SEND_CONS.start], data[SEND_CONS.stop:])
        return busy

    def _take_frame(self, entry, frame, now):
        control = parse_control(frame) if entry.roce else None
        qp = self.qps.find_life(control.dest_qp) if control else None
        if qp is not None:
            qp.on_control(control, now)
            return
        self.counts["raw_frames"] += 1
        if is_arp(frame):
            self.neighbours.on_frame(frame)
        for handler in (*self.raw_frame_handlers, *(service.on_frame for service in self.services)):
            handler(frame, entry)

    @property
    def transmitting(self):
        """Descriptors are in the card or wait for ring room: no interrupt tells when they are finished."""
        return self._turns.busy or self.nic.busy

    def wait(self, timeout_ns):
        """Sleep until the card has something, a QP's timer is due or the time is over, but never for less than
        the device can act in.

        Whoever looks at memory again within ``tx_poll_ns`` asks for no interrupt: a register would be written for
        nothing.
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
        if timeout_ns > poll_ns and self.fatal is None:
            for ring in abi.CARD_TO_HOST:
                self.rings[ring].arm()
        if self._waiting:      # the news may be for somebody else
            timeout_ns = min(timeout_ns, SHARED_WAIT_NS)
        self._waiting += 1
        try:
            return self._pause(max(self.device.shortest_wait_ns, timeout_ns))
        finally:
            self._waiting -= 1

    def _pause(self, timeout_ns):
        """Wait for the card while others may use the driver."""
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
            If the card failed, so that nothing will come.
        """
        deadline = None if timeout_ns is None else self.device.now_ns() + timeout_ns
        with self.lock:
            while True:
                busy = self.progress()
                if condition():
                    return
                if self.fatal is not None:
                    raise DeviceFatal(self.fatal)
                now = self.device.now_ns()
                if deadline is not None and now >= deadline:
                    raise TimedOut(f"nothing came within {timeout_ns} ns")
                if not busy:
                    self.wait(1_000_000 if deadline is None else deadline - now)

    @contextlib.contextmanager
    def giving_up(self):
        """For what is given back to the program: a card that fails meanwhile touches it no more, which is all that the
        block waits for.

        Raises
        ------
        DeviceFatal
            If it failed and could not be stopped.
        """
        try:
            yield
        except DeviceFatal:
            if not self.stopped:
                raise

    # ----------------------------------------------------------------------------------- for a QP

    def mark_active(self, qp):
        """``qp`` has something to do in the next :meth:`progress`."""
        self.qps.mark_active(qp)

    def find_way(self, qp):
        """Who takes the packets of ``qp``: as long as nobody knows, its work waits and its control frames get lost."""
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
                qp.fail(WCStatus.RETRY_EXC_ERR)

    def _send_arp(self, frame):
        try:
            self.nic.send(frame, self.neighbours)
        except QueueFull:
            self.counts["arp_frames_dropped"] += 1

    def drain_transmit(self, qp, timeout_ns=100_000_000):
        """Wait until no descriptor of ``qp`` is in the card, and no memory is lent to its peer."""
        qp.leaving = True
        qp.operations.abandon()
        if qp.sender is not None:
            qp.sender.abandon()
            self.run_until(lambda: not qp.sender.in_card, timeout_ns)
        qp.operations.close()
        if not qp.operations.closed:
            self.run_until(lambda: qp.operations.closed, timeout_ns)

    def stop_sending(self, qp):
        """``qp`` hands nothing over any more."""
        self._turns.remove(qp)

    def remove_qp(self, qp):
        """The card does not know ``qp`` any more."""
        self.qps.remove(qp)
        self.stop_sending(qp)
        self.loopback.forget(qp)

    def send_control(self, qp, frame):
        """Queue a control frame of a QP. When too many of it wait it gets lost: what any may do on the way."""
        if qp.looped:
            self.loopback.send_control(qp, frame)
            self.counts[_NAME[frame.opcode]] += 1
            return
        if qp.path.mac is None:
            self.counts["control_frames_dropped"] += 1
            return
        try:
            self.nic.send(qp.way.frames.build(frame), qp)
            self.counts[_NAME[frame.opcode]] += 1
        except BufferError:
            self.counts["control_frames_dropped"] += 1
