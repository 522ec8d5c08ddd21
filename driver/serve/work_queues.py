"""Queue pairs and shared receive queues with requests in a program's memory."""

import contextlib

from ..datagram.request import DatagramRequest
from ..ibverbs.rings import RECV_SLOT, SEND_SLOT, SGE_SLOT
from ..operation.memory import total
from ..operation.operation import FETCHES, SENDS, Operation
from ..operation.receives import Receive
from ..protocol.segment import MESSAGE_BYTES_MAX
from ..terms.enums import QPState, QPType, SrqAttrMask, WCStatus, WROpcode
from ..terms.errors import InvalidValue
from ..verbs.qp import QP
from ..verbs.requests import FLAGS, OPCODES, operation_of
from ..verbs.srq import SRQ
from .ring import SharedRing, Violation
from .shared_memory import compiled

_SEND, _RECV, _SGE = compiled(SEND_SLOT), compiled(RECV_SLOT), compiled(SGE_SLOT)


def _sges(mapping, at, count, keys):
    """Return ``(va, length, card's key)`` of ``count`` entries from ``at`` on."""
    entries = (_SGE.unpack_from(mapping, at + n * _SGE.size) for n in range(count))
    return [(va, length, keys[lkey]) for va, length, lkey in entries]


class ReceiveRing(SharedRing):
    """Ring of receive work requests; ``keys`` are :class:`~weft.driver.device.local_keys.LocalKeys`."""

    def __init__(self, name, most, sges, keys):
        super().__init__(name, most, _RECV.size + sges * _SGE.size)
        self.sges, self._keys = sges, keys

    def take(self, post, outstanding):
        """Hand all filled slots to ``post``; ``outstanding`` requests that were taken before are not done.

        Raises
        ------
        Violation
        """
        for _ in range(self.posted(outstanding)):
            at = self.place(self.own)
            wr_id, count = _RECV.unpack_from(self.mapping, at)
            if count > self.sges:
                raise Violation(f"{count} SGEs in a slot for {self.sges}")
            receive = Receive(wr_id, _sges(self.mapping, at + _RECV.size, count, self._keys))
            self.took()
            post(receive)


class ServedSRQ(SRQ):
    """Shared receive queue of a client; ``user`` identifies it in events for the program."""

    def __init__(self, creator, init, *, user):
        init.check()
        self.user = user
        with contextlib.ExitStack() as undo:
            self.ring = self._ring(creator.context, init.max_wr, init.max_sge)
            undo.callback(self.ring.close)
            super().__init__(creator, init)
            undo.pop_all()

    @staticmethod
    def _ring(context, max_wr, max_sge):
        return ReceiveRing("weft-srq", max_wr, max_sge, context.local_keys)

    def modify(self, attr, comp_mask, allow=lambda ring: None):
        """Change attributes as :meth:`SRQ.modify` does. A new capacity comes with a new, empty ring.

        ``allow(ring)`` may raise OutOfResources to reject the new ring.

        Raises
        ------
        InvalidValue, OutOfResources
        """
        mask, new = self._wanted(attr, comp_mask)
        if mask & SrqAttrMask.MAX_WR:
            self._replace(self._ring(self.context, new.max_wr, new.max_sge).allowed(allow))
        super().modify(attr, mask)

    def _replace(self, ring):
        """Take an empty ring instead of the present one."""
        old, self.ring = self.ring, ring
        ring.begin(len(self.receives))
        old.close()

    def take_work(self):
        """Take the requests that the program posted."""
        self.ring.take(self.receives.post, len(self.receives))

    def retired(self):
        """Retire the requests that were consumed."""
        self.ring.done(len(self.receives))

    def close(self):
        if not self.closed:
            super().close()
            self.ring.close()


def _datagram(opcode, flags, numbers, sges, inline):
    """Return the request of a datagram, whose arguments are those of :func:`~weft.driver.verbs.requests.operation_of`.

    The remote address is that of the address handle, the compare value the QPN, the ``rkey`` the Q_Key.

    Raises
    ------
    Violation
        If datagrams do not have the operation.
    """
    wr_id, address, qkey, imm, number, _ = numbers
    if opcode not in SENDS:
        raise Violation(f"opcode {opcode.name} on a UD queue pair")
    signaled, _, solicited, _ = flags
    request = DatagramRequest(
        wr_id, opcode, sges, total(sges) if inline is None else len(inline), address & 0xFFFF_FFFF, number & 0xFF_FFFF,
        qkey, address >> 32 & 0xF_FFFF, imm if opcode is WROpcode.SEND_WITH_IMM else None, signaled, solicited, inline)
    if request.length > MESSAGE_BYTES_MAX or any(va + size > 1 << 64 for va, size, _ in sges):
        request.status, request.sges, request.length = WCStatus.LOC_LEN_ERR, [], 0
    return request


class ServedQP(QP):
    """Queue pair of a client; ``user`` identifies it in events for the program."""

    def __init__(self, creator, init_attr, *, user):
        init_attr.check(creator.context)
        self.user, self._keys, cap = user, creator.context.local_keys, init_attr.own_cap()
        with contextlib.ExitStack() as undo:
            self.receives = ReceiveRing("weft-rq", max(1, cap.max_recv_wr), cap.max_recv_sge, self._keys)
            undo.callback(self.receives.close)
            self.sends = SharedRing("weft-sq", max(1, cap.max_send_wr),
                                    _SEND.size + max(cap.max_send_sge * _SGE.size, cap.max_inline_data))
            undo.callback(self.sends.close)
            super().__init__(creator, init_attr)
            undo.pop_all()

    def _begin_incarnation(self, qp_num, psn=None):
        super()._begin_incarnation(qp_num, psn)
        self.engine.on_unexpected = self._drop_client
        if self.qp_type is QPType.UD:
            self.engine.refill = self._take_receives

    def _drop_client(self, problem):
        self.scq.client.violated = problem

    def take_work(self):
        """Take the requests that the program posted.

        Raises
        ------
        Violation
        """
        if self.srq is None:
            self._take_receives()
        self._post([self._take_send() for _ in range(self.sends.posted(self.engine.outstanding))])
        self.sends.done(self.engine.outstanding)

    def send_posted(self):
        """Send the datagrams that the program posted before it destroys the QP: a card has sent them by then.

        Raises
        ------
        Violation
        """
        if self.qp_type is QPType.UD and self.qp_state is QPState.RTS:
            self.take_work()
            for _ in range(self.sends.slots):
                if not (self.engine.sendable and self.context.progress()):
                    break

    def _take_receives(self):
        """Take the receive requests that the program posted."""
        if self.srq is not None:
            self.srq.take_work()
        else:
            self.receives.take(self.engine.post_recv, self.engine.receives)

    def _take_send(self):
        """Return the operation of the oldest slot; an invalid one has its error status already.

        Raises
        ------
        Violation
        """
        mapping, at = self.sends.mapping, self.sends.place(self.sends.own)
        wr_id, remote, compare, swap, rkey, imm, number, bits, count, inline_length = _SEND.unpack_from(mapping, at)
        opcode, flags, at = OPCODES.get(number), FLAGS[bits % len(FLAGS)], at + _SEND.size
        if opcode is None or count > self.cap.max_send_sge or inline_length > self.cap.max_inline_data:
            raise Violation(f"opcode {number} with {count} SGEs and {inline_length} bytes inline")
        inline, sges = None, []
        if flags[3] and opcode not in FETCHES:
            inline = bytes(mapping[at : at + inline_length])
        else:
            sges = _sges(mapping, at, count, self._keys)
        self.sends.took()
        numbers = wr_id, remote, rkey, imm, compare, swap
        if self.qp_type is QPType.UD:
            return _datagram(opcode, flags, numbers, sges, inline)
        try:
            return operation_of(opcode, flags, numbers, sges, inline)
        except InvalidValue:
            operation = Operation(wr_id, opcode, [], 0)
            operation.refuse(WCStatus.LOC_LEN_ERR)
            return operation

    def _post(self, operations):
        if self.sender is None:      # in ERR from INIT or RTR: before RTS the library rejects requests
            self.engine.queues.complete_sends(operations, WCStatus.WR_FLUSH_ERR)
            return
        for operation in operations:
            if operation.single:
                continue
            if operation.plain:
                self.engine.check_list(operation)
            elif operation.status is None:
                try:
                    self.engine.prepare(operation)
                except MemoryError:
                    operation.refuse(WCStatus.LOC_QP_OP_ERR)
        self.engine.post_send(operations)

    def retired_send(self):
        """Retire the send requests that are finished."""
        self.sends.done(self.engine.outstanding)

    def retired_receive(self):
        """Retire the receive requests that are finished."""
        if self.srq is not None:
            self.srq.retired()
        else:
            self.receives.done(self.engine.receives)

    def reset(self):
        """Reset the QP as :meth:`QPIncarnation.reset` does, and discard the requests that were posted and not taken."""
        super().reset()
        self.sends.drop()
        self.receives.drop()

    def close(self):
        if not self.closed:
            super().close()
            self.sends.close()
            self.receives.close()
