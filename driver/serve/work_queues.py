"""Queue pairs and shared receive queues whose requests come out of a program's memory."""

import contextlib

from ..ibverbs.rings import RECV_SLOT, SEND_SLOT, SGE_SLOT
from ..operation.operation import COMPLETION_OPCODE, FETCHES, Operation, WriteOperation
from ..operation.receives import Receive
from ..terms.enums import SendFlags, WCStatus, WROpcode
from ..terms.errors import NoRoom
from ..verbs.qp import QP
from ..verbs.srq import SRQ
from .ring import SharedRing, Violation
from .shared_memory import compiled

_SEND, _RECV, _SGE = compiled(SEND_SLOT), compiled(RECV_SLOT), compiled(SGE_SLOT)
_OPCODES = {int(opcode): opcode for opcode in COMPLETION_OPCODE}
_WITH_IMM = {WROpcode.SEND_WITH_IMM, WROpcode.RDMA_WRITE_WITH_IMM}
_FENCE, _SIGNALED, _SOLICITED, _INLINE = (
    int(flag) for flag in (SendFlags.FENCE, SendFlags.SIGNALED, SendFlags.SOLICITED, SendFlags.INLINE))
_ADDRESSES, LENGTH_MAX = 1 << 64, (1 << 31) - 1


def _sges(mapping, at, count, keys):
    """(va, length, the card's key) of the entries from ``at`` on."""
    entries = (_SGE.unpack_from(mapping, at + n * _SGE.size) for n in range(count))
    return [(va, length, keys[lkey]) for va, length, lkey in entries]


def _possible(sges, remote, inline):
    """No range ends behind the last address, and the whole is no longer than a message."""
    length = sum(n for _, n, _ in sges) if inline is None else len(inline)
    return (length <= LENGTH_MAX and remote + length <= _ADDRESSES
            and all(va + n <= _ADDRESSES for va, n, _ in sges))


class ReceiveRing(SharedRing):
    """Receive work requests; ``keys`` are :class:`~weft.driver.device.local_keys.LocalKeys`."""

    def __init__(self, name, most, sges, keys):
        super().__init__(name, most, _RECV.size + sges * _SGE.size)
        self.sges, self._keys = sges, keys

    def take(self, post):
        """Hand all that is there to ``post``.

        Raises
        ------
        Violation
        """
        for _ in range(self.filled):
            at = self.place(self.own)
            wr_id, count = _RECV.unpack_from(self.mapping, at)
            if count > self.sges:
                raise Violation(f"{count} SGEs in a slot for {self.sges}")
            receive = Receive(wr_id, _sges(self.mapping, at + _RECV.size, count, self._keys))
            self.took()
            post(receive)


class ServedSRQ(SRQ):
    """A shared receive queue of a client; ``user`` is what the program calls it in events."""

    def __init__(self, creator, attr, *, user):
        super().__init__(creator, attr)
        self.user = user
        try:
            self.ring = ReceiveRing("weft-srq", attr.max_wr, attr.max_sge, self.context.local_keys)
        except NoRoom:
            super().close()
            raise

    def take_work(self):
        """Take what the program posted."""
        self.ring.take(self.receives.post)

    def retired(self):
        """A request was used."""
        self.ring.done(len(self.receives))

    def close(self):
        if not self.closed:
            super().close()
            self.ring.close()


class ServedQP(QP):
    """A queue pair of a client; ``user`` is what the program calls it in events."""

    def __init__(self, creator, init_attr, *, user):
        super().__init__(creator, init_attr)
        self.user, cap, self._keys = user, self.cap, self.context.local_keys
        try:
            receives = ReceiveRing("weft-rq", max(1, cap.max_recv_wr), cap.max_recv_sge, self._keys)
            with contextlib.ExitStack() as undo:
                undo.callback(receives.close)
                self.sends = SharedRing("weft-sq", max(1, cap.max_send_wr),
                                        _SEND.size + max(cap.max_send_sge * _SGE.size, cap.max_inline_data))
                self.receives = receives
                undo.pop_all()
        except NoRoom:
            super().close()
            raise

    def take_work(self):
        """Take what the program posted.

        Raises
        ------
        Violation
        """
        if self.srq is None:
            self.receives.take(self.engine.post_recv)
        for _ in range(self.sends.filled):
            self._take_send()
        self.sends.done(self.engine.outstanding)

    def _take_send(self):
        ring, mapping = self.sends, self.sends.mapping
        at = ring.place(ring.own)
        wr_id, remote, compare, swap, rkey, imm, opcode, flags, count, inline_length = _SEND.unpack_from(mapping, at)
        kind, at = _OPCODES.get(opcode), at + _SEND.size
        if kind is None or count > self.cap.max_send_sge or inline_length > self.cap.max_inline_data:
            raise Violation(f"opcode {opcode} with {count} SGEs and {inline_length} bytes inline")
        inline = bytes(mapping[at : at + inline_length]) if flags & _INLINE and kind not in FETCHES else None
        sges = _sges(mapping, at, count, self._keys) if inline is None else []
        ring.took()
        signaled, fence, solicited = bool(flags & _SIGNALED), bool(flags & _FENCE), bool(flags & _SOLICITED)
        if kind is WROpcode.RDMA_WRITE and len(sges) == 1:
            operation = WriteOperation(wr_id, *sges[0], remote, rkey, signaled, fence, solicited)
        else:
            operation = Operation(
                wr_id, kind, sges, remote, rkey, imm=imm if kind in _WITH_IMM else None, signaled=signaled, fence=fence,
                solicited=solicited, inline=inline, compare_add=compare, swap=swap)
        if self.sender is None:      # in ERR by way of INIT or RTR: the library lets nothing through before RTS
            self.engine.complete_sends([operation], WCStatus.WR_FLUSH_ERR)
            return
        try:
            self.engine.post_send(operation)
        except MemoryError:
            self.engine.fail(WCStatus.LOC_QP_OP_ERR)
        if not _possible(sges, remote, inline):
            self.engine.fail(WCStatus.LOC_LEN_ERR)

    def retired_send(self):
        """A send request is done with."""
        self.sends.done(self.engine.outstanding)

    def retired_receive(self):
        """A receive request is."""
        if self.srq is not None:
            self.srq.retired()
        else:
            self.receives.done(self.engine.receives)

    def reset(self):
        """See :meth:`QPLife.reset`: what was posted and not taken is gone, too."""
        super().reset()
        if hasattr(self, "sends"):
            self.sends.drop()
            self.receives.drop()

    def close(self):
        if not self.closed:
            super().close()
            if hasattr(self, "sends"):
                self.sends.close()
                self.receives.close()
