"""Responder of a QP: executes requests of the peer in the order of its send queue."""

import collections
from dataclasses import dataclass, field

from weft.hdl.contract import wire
from weft.hdl.contract.abi import AccessFlag

from ..device.attached import MemoryFault
from ..protocol.message_end import ATOMICS, SEQUENCE_BITS, Kind, MessageEnd, place
from ..protocol.segment import Request
from ..terms.enums import WCStatus
from .mailbox import ATOMIC_ETH, EAGER_BYTES, SGES_MAX, fit, pack_targets, unpack_targets
from .memory import AccessError, cut, total
from .operation import ATOMIC_BYTES
from .window_revocation import WindowRevocation

_SEQUENCES = 1 << SEQUENCE_BITS
_TAKES_RECEIVE = frozenset({Kind.WRITE_IMM, Kind.SEND, Kind.SEND_REQUEST})
_FETCHES = frozenset({Kind.READ, *ATOMICS})
INVALID, ACCESS, OPERATIONAL = (wire.Syndrome.NAK_INVALID_REQUEST, wire.Syndrome.NAK_REMOTE_ACCESS,
                                wire.Syndrome.NAK_REMOTE_OPERATIONAL)


@dataclass(eq=False, slots=True)
class Entry:
    """Incomplete request of the peer.

    Attributes
    ----------
    psn : int
        Of its message end.
    wr
        Receive request that it consumed.
    windows : list of Window
        On the memory of ``wr``.
    unready : int
        Number of these that the card does not have yet.
    syndrome : Syndrome or None
        Reason for a NAK when everything before it is complete. The receive request then completes with ``status``.
    """

    psn: int
    end: MessageEnd
    wr: object = None
    windows: list = field(default_factory=list)
    unready: int = 0
    granted: bool = False
    done: bool = False
    syndrome: object = None
    status: WCStatus = WCStatus.WR_FLUSH_ERR


class Responder:
    """Requests of the peer of one QP.

    Requests start in order. A SEND or a write with immediate consumes the oldest receive request. Without one, it
    waits, and so do all later requests. A read or an atomic starts when all requests before it are complete. Requests
    complete in order, and acknowledgements report the number of complete ones to the peer.

    The number of pending requests is bounded: sends with data by the slots of the mailbox, reads and atomics by
    ``max_dest_rd_atomic``, and all together by the limit of the receiver.

    Parameters
    ----------
    resources : Resources
    queues : Queues
    mailbox : Mailbox
    wake : callable()
        Called when a request may continue in the next round.
    """

    def __init__(self, resources, queues, mailbox, *, wake):
        self._resources, self._queues, self._mailbox, self._wake = resources, queues, mailbox, wake
        self.entries = collections.deque()
        self.failed = False
        self._started = 0        # number of started entries
        self._unanswered = 0     # responses that the peer has not acknowledged
        self._sequence = 0
        self._by_sequence = {}   # sends with windows, granted or soon granted
        self._promised = 0       # incomplete SEND_REQUESTs
        self._fetches = 0        # reads and atomics that have not started
        self._returns = WindowRevocation(resources.windows, wake)

    def __len__(self):
        return len(self.entries)

    @property
    def lends(self):
        """True if the card has windows of requests, or is removing them."""
        return bool(self._returns.leaving) or any(entry.windows for entry in self.entries)

    @property
    def quiet(self):
        """True if every request before a rejected packet has its response, and all responses are acknowledged.

        Granted data that has not arrived by then will not arrive.
        """
        if self._unanswered or not self.entries:
            return not self._unanswered
        first = self.entries[0]
        return first.syndrome is not None or first.granted and first.end.sequence in self._by_sequence

    @property
    def waiting_psn(self):
        """PSN of the oldest request if it waits for a receive request, else None."""
        if self.entries and not self._started and self.entries[0].end.kind in _TAKES_RECEIVE:
            return self.entries[0].psn
        return None

    # ------------------------------------------------------------------------------------- requests

    def on_request(self, psn, end):
        """Handle the next request of the peer. All writes before it are complete."""
        if self.failed or self.entries and self.entries[-1].syndrome is not None:
            return
        if end.kind is Kind.WRITE and not self.entries and (end.length or self._writable):
            self._sequence += 1
            self._resources.receiver.completed()
            return
        syndrome = self._fault(end)
        self._sequence += 1
        self._promised += end.kind is Kind.SEND_REQUEST
        self._fetches += end.kind in _FETCHES
        self.entries.append(Entry(psn, end, syndrome=syndrome))

    @property
    def _writable(self):
        return AccessFlag.REMOTE_WRITE & self._resources.rights().qp_access_flags

    def _fault(self, end):
        """Return the syndrome of an invalid request, or None."""
        if end.kind is Kind.WRITE:
            return None if end.length or self._writable else ACCESS
        if end.kind is Kind.WRITE_IMM and not self._writable:
            return ACCESS
        slots = self._mailbox.own_slots if self._mailbox.ready else 0
        wrong = (
            end.sequence not in (None, self._sequence % _SEQUENCES)
            or end.kind is Kind.SEND and (end.length > EAGER_BYTES or end.length and end.slot >= slots)
            or end.kind is Kind.SEND_REQUEST and (end.length <= EAGER_BYTES or self._promised >= slots
                                                  or end.slot >= slots or self._mailbox.peer_key is None)
            or end.kind in _FETCHES and (end.slot >= slots or end.targets > SGES_MAX
                                         or self._fetches >= self._resources.rights().max_dest_rd_atomic)
        )
        return INVALID if wrong else None

    def on_data(self, end):
        """Handle a SEND_DATA. Return false if no grant matches it."""
        entry = self._by_sequence.pop(end.sequence, None)
        if entry is None or not entry.granted or end.length != entry.end.length:
            return False
        entry.unready = len(entry.windows)

        def gone():
            entry.unready -= 1
            entry.done = not entry.unready

        self._returns.take(entry, gone)
        return True

    # ------------------------------------------------------------------------------------- progress

    def pump(self):
        """Start and complete the requests that are ready."""
        if self.failed:
            if not self._returns.leaving:
                self._flush()
            return
        while self._started < len(self.entries) and self.entries[self._started].syndrome is None:
            entry = self.entries[self._started]
            if not self._start(entry):
                break
            self._started += 1
            if entry.syndrome is not None:
                break
            self._complete()
        self._complete()
        for entry in self._by_sequence.values():
            if not entry.granted and not entry.unready:
                self._grant(entry)
        if self.entries and self.entries[0].syndrome is not None and not self._unanswered:
            self._resources.receiver.refuse(self.entries[0].psn, self.entries[0].syndrome)

    def _start(self, entry):
        """Start a request. Return false if it must wait."""
        kind = entry.end.kind
        if kind in _FETCHES:
            return self._start_fetch(entry)
        if kind is Kind.WRITE:
            entry.done = True
            return True
        if kind is Kind.SEND_REQUEST and self._resources.sender is None:
            return False
        if entry.wr is None:
            entry.wr = self._queues.take_receive()
        if entry.wr is None:
            return False
        if kind is Kind.WRITE_IMM:
            entry.done = True
            return True
        try:
            if entry.end.length > total(entry.wr.sges):
                entry.syndrome, entry.status = INVALID, WCStatus.LOC_LEN_ERR
            elif kind is Kind.SEND_REQUEST:
                return self._make_windows(entry)
            else:
                self._take_data(entry)
        except AccessError:
            entry.syndrome, entry.status = OPERATIONAL, WCStatus.LOC_PROT_ERR
        except MemoryError:
            entry.syndrome, entry.status = OPERATIONAL, WCStatus.LOC_QP_OP_ERR
        return True

    def _take_data(self, entry):
        """Copy the data of a short send from the mailbox."""
        res, end = self._resources, entry.end
        if end.length:
            res.memory.store(res.pd, entry.wr.sges, self._mailbox.read_request(end.slot, end.length))
        entry.done = True

    def _make_windows(self, entry):
        """Request windows on the memory of the receive request. Return false if no index is free at present."""
        res, end = self._resources, entry.end
        places = [(res.memory.local(res.pd, *sge, AccessFlag.LOCAL_WRITE), sge)
                  for sge in cut(entry.wr.sges, end.length)]
        if not res.windows.space(len(places), self._wake):
            return False

        def ready():
            entry.unready -= 1
            self._wake()

        entry.unready = len(places)
        entry.windows = [res.make_window(mr, va, length, ready) for mr, (va, length, _) in places]
        self._by_sequence[end.sequence] = entry
        return True

    def _grant(self, entry):
        entry.granted = True
        data = pack_targets([window.target for window in entry.windows])
        slot, mailbox = entry.end.slot, self._mailbox
        sges, inline = self._resources.known(data, lambda data: mailbox.stage_grant(slot, data))
        end = MessageEnd(Kind.GRANT, entry.end.sequence, entry.end.length, place(slot, len(entry.windows)))
        self._answer(entry, sges, [mailbox.grant_place(slot, len(data))], end, inline)

    def _answer(self, entry, sges, targets, end, inline=None):
        self._unanswered += 1
        self._resources.sender.post([Answer(sges, targets, end, inline, entry.psn, self._arrived)])

    def _arrived(self):
        self._unanswered -= 1

    def _start_fetch(self, entry):
        res = self._resources
        if self._started or res.sender is None or self._unanswered >= res.rights().max_dest_rd_atomic:
            return False
        self._fetches -= 1
        try:
            syndrome = (self._read if entry.end.kind is Kind.READ else self._atomic)(entry)
        except (AccessError, MemoryFault):
            syndrome = ACCESS
        entry.syndrome, entry.done = syndrome, syndrome is None
        return True

    def _read(self, entry):
        res, end = self._resources, entry.end
        size = wire.RETH.size_bytes
        (va, rkey, length), *targets = unpack_targets(self._mailbox.read_request(end.slot, size * (1 + end.targets)))
        if length != end.length or not fit(targets, length):
            return INVALID
        mr = res.memory.remote(res.pd, va, length, rkey, AccessFlag.REMOTE_READ, res.rights().qp_access_flags)
        self._answer(entry, [(va, length, mr.rkey)] if length else [], targets,
                     MessageEnd(Kind.READ_DATA, end.sequence, length))
        return None

    def _atomic(self, entry):
        res, end = self._resources, entry.end
        subject = ATOMIC_ETH.unpack(self._mailbox.read_request(end.slot, ATOMIC_ETH.size_bytes))
        if subject.va % ATOMIC_BYTES or end.length != ATOMIC_BYTES:
            return INVALID
        mr = res.memory.remote(res.pd, subject.va, ATOMIC_BYTES, subject.rkey, AccessFlag.REMOTE_ATOMIC,
                               res.rights().qp_access_flags)
        old = int.from_bytes(mr.read(ATOMIC_BYTES, subject.va - mr.buf), "little")
        if end.kind is Kind.FETCH_AND_ADD:
            new = (old + subject.swap_or_add) % (1 << 64)
        else:
            new = subject.swap_or_add if old == subject.compare else old
        mr.write(new.to_bytes(ATOMIC_BYTES, "little"), ATOMIC_BYTES, subject.va - mr.buf)
        self._answer(entry, [], [], MessageEnd(Kind.ATOMIC_RESULT, end.sequence, ATOMIC_BYTES, old >> 32,
                                               old & 0xFFFF_FFFF))
        return None

    def _complete(self):
        while self.entries and self.entries[0].done:
            entry = self.entries.popleft()
            self._started -= 1
            self._promised -= entry.end.kind is Kind.SEND_REQUEST
            self._resources.receiver.completed()
            if entry.wr is not None:
                self._queues.complete_receive(entry.wr, WCStatus.SUCCESS, entry.end)

    # --------------------------------------------------------------------------------------- endings

    def fail(self):
        """Complete all consumed receive requests with an error, once no window is left."""
        if not self.failed:
            self.failed = True
            self._close_windows()
            self.pump()

    def abandon(self):
        """Drop all requests without completions."""
        self.failed = True
        self._close_windows()
        self.entries.clear()

    def _close_windows(self):
        self._by_sequence.clear()
        for entry in self.entries:
            self._returns.take(entry)

    def forget(self):
        """Drop all windows: the card was reset."""
        self._returns.forget(self.entries)

    def _flush(self):
        while self.entries:
            entry = self.entries.popleft()
            if entry.wr is not None:
                self._queues.complete_receive(entry.wr, entry.status)
        self._queues.flush_receives()


class Answer(Request):
    """Response to the peer's request with the PSN ``asked``. ``arrived()`` is called when it is acknowledged."""

    __slots__ = ("_arrived", "asked")

    def __init__(self, sges, targets, end, inline, asked, arrived):
        super().__init__(0, sges, 0, 0, targets=targets, end=end, inline=inline)
        self.asked, self._arrived = asked, arrived

    def on_sent(self):
        self._arrived()
