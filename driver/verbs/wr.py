"""Work requests."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from ..terms.enums import SendFlags, WROpcode
from ..terms.errors import NotSupported
from .addr import AH


@dataclass
class SGE:
    """Scatter-gather entry: local virtual address, bytes, lkey."""

    addr: int
    length: int
    lkey: int


@dataclass
class SendWR:
    """Send work request. ``num_sge`` 0 means all of ``sg``; ``next_wr`` is posted together with it."""

    wr_id: int = 0
    opcode: WROpcode = WROpcode.SEND
    num_sge: int = 0
    imm_data: int = 0
    sg: list[SGE] = field(default_factory=list)
    send_flags: SendFlags = SendFlags.SIGNALED
    next_wr: "SendWR | None" = None
    rkey: int = field(default=0, kw_only=True)
    remote_addr: int = field(default=0, kw_only=True)
    compare_add: int = field(default=0, kw_only=True)
    swap: int = field(default=0, kw_only=True)
    ah: AH | None = field(default=None, kw_only=True)
    remote_qpn: int = field(default=0, kw_only=True)
    remote_qkey: int = field(default=0, kw_only=True)

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Set the remote key and address of an RDMA operation."""
        self.rkey, self.remote_addr = rkey, addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Set the remote key and address of an atomic, the operand to compare or to add, and the operand to swap in."""
        self.rkey, self.remote_addr, self.compare_add, self.swap = rkey, addr, compare_add, swap

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        """Set the address handle, QP number and Q_Key of the destination of a datagram.

        A Q_Key whose highest bit is set stands for that of the sending QP.
        """
        self.ah, self.remote_qpn, self.remote_qkey = ah, rqpn, rqkey

    def set_bind_wr(self, bind_info: object, mw: object) -> NoReturn:
        raise NotSupported("Failed to bind a memory window: there are none here")

    def set_qp_type_xrc(self, remote_srqn: int) -> NoReturn:
        raise NotSupported("Failed to set an XRC SRQ: there are only RC and UD queue pairs here")


@dataclass
class RecvWR:
    """Receive work request; ``num_sge`` and ``next_wr`` as in :class:`SendWR`."""

    wr_id: int = 0
    num_sge: int = 0
    sg: list[SGE] = field(default_factory=list)
    next_wr: "RecvWR | None" = None


Request = TypeVar("Request", SendWR, RecvWR)


def chain(wr: Request, kind: type[Request]) -> Iterator[Request]:
    """Yield a work request and those that follow it by ``next_wr``.

    Raises
    ------
    TypeError
        If a request is not of class ``kind``; the preceding requests are yielded first.
    """
    while True:
        if not isinstance(wr, kind):
            raise TypeError(f"a {kind.__name__} is needed, not {wr!r}")
        yield wr
        if wr.next_wr is None:
            return
        wr = wr.next_wr


def note_bad(wr: Request, bad_wr: Request | None) -> None:
    """Copy the fields of the rejected request ``wr`` to ``bad_wr``, unless that is None."""
    if bad_wr is not None:
        vars(bad_wr).update(vars(wr))
