"""Requester of a QP: executes send work requests in the order in which they were posted."""

import collections

from weft.hdl.contract.abi import AccessFlag
from weft.hdl.contract.wire import packet_count

from ..protocol.message_end import SEQUENCE_BITS, Kind, MessageEnd, place
from ..protocol.segment import Request
from ..terms.enums import WCStatus, WROpcode
from .mailbox import ATOMIC_ETH, EAGER_BYTES, SGES_MAX, fit, pack_targets
from .memory import AccessError, cut
from .operation import ATOMIC_BYTES, ATOMIC_KIND, FETCHES, SENDS, WRITES
from .window_revocation import WindowRevocation

_SEQUENCES = 1 << SEQUENCE_BITS
RESERVE = SGES_MAX     # MR indices reserved for receives: a response may depend on one


class Requester:
    """Send work requests of one QP.

    Operations start and complete in order.

    * A plain write is sent, and is complete when acknowledged.
    * A short send is written into a slot of the peer's mailbox. A longer one is announced to the peer; when the peer
      grants the memory of a receive, the data is written there. Either is complete when the peer reports it as
      complete.
    * A read asks the peer to write into memory windows of its destinations, an atomic asks for a value. They are
      complete with the response. At most ``max_rd_atomic`` of them are outstanding.

    Writes that were posted as a list are one message to the peer: only the last one has a message end, whose
    acknowledgement covers them all, and the list counts as one request. A list of more packets than the sender's
    acknowledgement interval is split into several such messages.

    A write starts only after the data of all earlier sends is on its way: the peer's card may reject the write and then
    drops all later packets.

    Parameters
    ----------
    resources : Resources
    queues : Queues
    mailbox : Mailbox
    wake : callable()
        Called when an operation may continue in the next round.
    fail : callable(status)
        Called when all operations must end: the oldest one with ``status``.

    Attributes
    ----------
    waiting, open : deque of Operation
        Not started; started and incomplete.
    closed : bool
        No operation is started at present.
    failed : WCStatus or None
        Status of the oldest operation at the failure; all others are flushed.
    started : int
        Requests started so far, as the peer counts them.
    """

    def __init__(self, resources, queues, mailbox, *, wake, fail):
        self._resources, self._queues, self._mailbox, self._wake, self._fail = resources, queues, mailbox, wake, fail
        self.waiting, self.open = collections.deque(), collections.deque()
        self.failed = None
        self.closed = False
        self.started = 0
        self._answers = {}       # sequence mod 2^24 -> operation that waits for a response
        self._fetches = self._ungranted = 0
        self._unheard = 0        # packets so far of the message that the last plain write belongs to
        self._returns = WindowRevocation(resources.windows, wake)
        self._blocked = False    # an operation will fail in its turn: no later one is started
        self._slots, self._grants = set(), set()     # in use

    def __len__(self):
        return len(self.waiting) + len(self.open)

    @property
    def oldest_psn(self):
        """First PSN of the oldest incomplete operation, or None."""
        if not self.open:
            return None
        return (self.open[0].question or self.open[0]).psn

    @property
    def lends(self):
        """True if the card has windows of operations, or is removing them."""
        return bool(self._returns.leaving) or any(op.windows for op in (*self.open, *self.waiting))

    def needs_mailbox(self, op):
        """Return true if writes alone cannot execute the operation."""
        if op.opcode in WRITES:
            return op.inline is not None and len(op.inline) > self._resources.inline_bytes
        return bool(op.length or op.opcode in FETCHES)

    # ------------------------------------------------------------------------------------- starting

    def check_list(self, op):
        """Let a write from several entries fail if one is invalid. The card would transfer the others."""
        if op.opcode in WRITES and len(op.sges) > 1:
            self._check(op)
            op.plain &= op.status is None

    def prepare(self, op):
        """Open the mailbox if the operation needs it. A write that does not is plain.

        Raises
        ------
        MemoryError
            If there is no memory for it.
        """
        self.check_list(op)
        if self.needs_mailbox(op):
            if self.failed is None:
                self._mailbox.open()
        else:
            op.plain = op.opcode is WROpcode.RDMA_WRITE and op.status is None

    def pump(self):
        """Start and complete the operations that are ready."""
        if self.failed is None:
            if self.open:
                self._complete()
            if self.waiting:
                self._start_waiting()
            if self.open and self.open[0].status is not None:
                self._fail(self.open[0].status)
        elif not self.lends:
            self._flush()

    def _start_waiting(self):
        waiting, started, messages, queue = self.waiting, self.open, [], self._resources.sender.queue
        pmtu, most = queue.pmtu, queue.acked_at_once
        while waiting and not (self._blocked or self.closed):
            op = waiting[0]
            plain = op.plain
            if self._ungranted or op.fence and self._fetches if plain else not self._may_start(op):
                break
            started.append(waiting.popleft())
            op.sequence = self.started
            # A message continues from a plain write to the next one of the same list.
            if op.followed and plain and op.length and waiting and waiting[0].plain and not waiting[0].fence:
                op.packets = 1 if op.inline else packet_count(op.remote_va, op.length, pmtu)
                self._unheard += op.packets
                op.followed = self._unheard < most
            else:
                op.followed = False
            if not op.followed:
                self.started += 1
                self._unheard = 0
            if op.status is not None:
                self._blocked = True
            elif (message := op if plain and op.inline is None else self._message(op)) is not None:
                messages.append(message)
        if messages:
            self._resources.sender.post(messages)

    def _may_start(self, op):
        if op.status is not None:
            return True
        if op.fence and self._fetches or not self._reachable(op):
            return False
        if op.opcode in WRITES:
            return not self._ungranted and (not self.needs_mailbox(op) or self._take_slots(op))
        if op.opcode in SENDS:
            return not op.length or self._take_slots(op)
        if not self._resources.rights().max_rd_atomic:
            op.status = WCStatus.LOC_QP_OP_ERR
            return True
        return (self._fetches < self._resources.rights().max_rd_atomic and self._take_slots(op)
                and self._prepared())

    def _reachable(self, op):
        """Return true if the mailboxes that the operation needs are ready. Otherwise request them."""
        if not self.needs_mailbox(op):
            return True
        mailbox = self._mailbox
        return mailbox.ready if op.opcode in WRITES else mailbox.reach()

    def _take_slots(self, op):
        """Take the slots that the operation needs. Return false if one is not free."""
        if op.opcode not in SENDS or op.length <= EAGER_BYTES:
            return self._take_slot(op, self._slots, "slot")
        return (self._take_slot(op, self._grants, "grant_slot")
                and (op.inline is None or self._take_slot(op, self._slots, "slot")))     # to stage the data

    def _take_slot(self, op, used, name):
        if getattr(op, name) is None:
            slot = next((s for s in range(self._mailbox.slots) if s not in used), None)
            if slot is None:
                return False
            used.add(slot)
            setattr(op, name, slot)
        return True

    def _prepared(self):
        """Return true if the oldest operation has its windows. Windows of later operations are requested too."""
        ahead = self._resources.rights().max_rd_atomic - self._fetches
        for op in self.waiting:
            if not ahead or op.opcode not in FETCHES:
                break
            ahead -= 1
            if op.unready is None and not self._make_windows(op):
                break
        return self.waiting[0].unready == 0

    def _make_windows(self, op):
        """Request windows on the destinations of a read. Return false if no index is free at present."""
        res, op.unready = self._resources, 0
        try:
            found = [(res.memory.local(res.pd, *sge, AccessFlag.LOCAL_WRITE), sge)
                     for sge in cut(op.sges, op.length)]
        except AccessError:
            op.status = WCStatus.LOC_PROT_ERR
            return True
        if op.opcode is WROpcode.RDMA_READ:
            def ready():
                op.unready -= 1
                self._wake()

            try:
                if not res.windows.space(len(found), self._wake, RESERVE):
                    op.unready = None
                    return False
            except MemoryError:
                op.status = WCStatus.LOC_QP_OP_ERR
                return True
            op.unready = len(found)
            op.windows = [res.make_window(mr, va, length, ready) for mr, (va, length, _) in found]
        return True

    def _message(self, op):
        """Return the first message of an operation, or None if it will fail."""
        if op.opcode in WRITES:     # the card reports errors of writes
            return self._loaded(op)
        self._check(op)
        if op.status is not None:
            self._blocked = True
            return None
        return self._start_send(op) if op.opcode in SENDS else self._start_fetch(op)

    def _check(self, op):
        """Check the local memory of an operation, before the peer is involved: the card would detect an error too late.
        """
        if op.inline is not None:
            return
        try:
            for sge in op.sges:
                self._resources.memory.local(self._resources.pd, *sge)
        except AccessError:
            op.status = WCStatus.LOC_PROT_ERR
        if op.opcode in ATOMIC_KIND and op.length != ATOMIC_BYTES:
            op.status = WCStatus.LOC_LEN_ERR

    def _number(self, op):
        return op.sequence % _SEQUENCES

    def _known(self, op, data):
        """Return ``sges`` and ``inline`` for data that the driver has."""
        return self._resources.known(data, lambda data: self._mailbox.stage_request(op.slot, data))

    def _loaded(self, op):
        """Return the operation as the message that transfers its data."""
        if op.inline is not None:
            op.sges, op.inline = self._known(op, op.inline)
        return op

    def _end(self, op, kind, argument=0, imm=None):
        return MessageEnd(kind, self._number(op), op.length, argument, imm or 0, int(imm is not None),
                          int(op.solicited))

    def _start_send(self, op):
        if op.length > EAGER_BYTES:
            self._ungranted += 1
            self._answers[self._number(op)] = op
            op.question = Request(0, [], 0, 0, end=self._end(op, Kind.SEND_REQUEST, place(op.grant_slot), op.imm))
            return op.question
        op.targets = [self._mailbox.request_place(op.slot, op.length)] if op.length else []
        op.end = self._end(op, Kind.SEND, place(op.slot or 0), op.imm)
        return self._loaded(op)

    def _start_fetch(self, op):
        self._fetches += 1
        self._answers[self._number(op)] = op
        if op.opcode is WROpcode.RDMA_READ:
            targets = [window.target for window in op.windows]
            kind, data = Kind.READ, pack_targets([(op.remote_va, op.rkey, op.length), *targets])
        else:
            first, second = ((op.compare_add, 0) if op.opcode is WROpcode.ATOMIC_FETCH_AND_ADD
                             else (op.swap, op.compare_add))
            targets, kind = [], ATOMIC_KIND[op.opcode]
            data = ATOMIC_ETH.pack(va=op.remote_va, rkey=op.rkey, swap_or_add=first, compare=second)
        sges, inline = self._known(op, data)
        op.question = Request(0, sges, 0, 0, inline=inline, targets=[self._mailbox.request_place(op.slot, len(data))],
                              end=self._end(op, kind, place(op.slot, len(targets))))
        return op.question

    # -------------------------------------------------------------------------------------- responses

    def on_answer(self, end):
        """Handle a GRANT, READ_DATA or ATOMIC_RESULT. Return false if no outstanding request matches it."""
        op = self._answers.get(end.sequence)
        if op is None:
            return False
        if end.kind is Kind.GRANT:
            return self._granted(op, end)
        if end.kind is Kind.READ_DATA:
            return self._read(op, end)
        return self._fetched(op, end)

    def _granted(self, op, end):
        if op.opcode not in SENDS or not 1 <= end.targets <= SGES_MAX:
            return False
        targets = self._mailbox.read_grant(op.grant_slot, end.targets)
        if not fit(targets, op.length):
            return False
        del self._answers[end.sequence]
        self._ungranted -= 1
        if op.inline is not None:
            op.sges, op.inline = [self._mailbox.stage_request(op.slot, op.inline)], None
        op.targets, op.end = targets, self._end(op, Kind.SEND_DATA)
        self._resources.sender.post([op])
        return True

    def _read(self, op, end):
        if op.opcode is not WROpcode.RDMA_READ or end.length != op.length:
            return False
        del self._answers[end.sequence]
        op.unready = len(op.windows)
        op.answered = not op.windows

        def gone():
            op.unready -= 1
            op.answered = not op.unready

        self._returns.take(op, gone)
        return True

    def _fetched(self, op, end):
        if op.opcode not in ATOMIC_KIND:
            return False
        del self._answers[end.sequence]
        try:
            self._resources.memory.store(self._resources.pd, op.sges, end.value.to_bytes(ATOMIC_BYTES, "little"))
        except AccessError:
            op.status = WCStatus.LOC_PROT_ERR
            return True
        op.answered = True
        return True

    # ---------------------------------------------------------------------------------- completions

    def _complete(self):
        queue, msn, done = self.open, self._resources.sender.msn, []
        while queue and (op := queue[0]).status is None and (op.acked if op.plain and op.length else op.done(msn)):
            done.append(queue.popleft())
            if op.plain:
                continue
            if op.slot is not None or op.grant_slot is not None:
                self._slots.discard(op.slot)
                self._grants.discard(op.grant_slot)
            self._fetches -= op.opcode in FETCHES
        if done:
            self._queues.complete_sends(done, WCStatus.SUCCESS)
        if queue and queue[0].status is not None:
            self._fail(queue[0].status)

    def fail_in_turn(self, psn, status):
        """Mark the operation whose message has this PSN as failed. Return false if there is none.

        Operations before it may still succeed.
        """
        for op in self.open:
            if any(m.psn <= psn < m.end_psn for m in op.messages if m.psn is not None):
                op.status = op.status or status
                self._blocked = True
                return True
        return False

    def fail(self, status):
        """Complete the oldest operation with ``status`` and flush all others, once no window is left."""
        if self.failed is None:
            self.failed = status
            self._close_windows()
            self.pump()

    def abandon(self):
        """Drop all operations without completions."""
        self.failed = self.failed or WCStatus.WR_FLUSH_ERR
        self._close_windows()
        self.open.clear()
        self.waiting.clear()

    def _close_windows(self):
        self._answers.clear()
        for op in (*self.open, *self.waiting):
            self._returns.take(op)

    def forget(self):
        """Drop all windows: the card was reset."""
        self._returns.forget((*self.open, *self.waiting))

    def _flush(self):
        status, self.failed = self.failed, WCStatus.WR_FLUSH_ERR
        for queue in (self.open, self.waiting):
            while queue:
                self._queues.complete_sends([queue.popleft()], status)
                status = WCStatus.WR_FLUSH_ERR
