"""Send work request in transmission: contents of its packets, and effect of its answers (IBTA 1.7, chapter 9.4)."""

from dataclasses import dataclass, field

from ...protocol.segment import MESSAGE_BYTES_MAX
from ...terms.checks import member, unsigned
from ...terms.enums import AccessFlag, SendFlags, WCOpcode, WCStatus, WROpcode
from ...terms.errors import NotSupported
from ...verbs.requests import sges_of
from .opcodes import RcOpcode, send_opcode, write_opcode
from .packet import RcPacket

ATOMIC_BYTES = 8
COMPLETION = {WROpcode.SEND: WCOpcode.SEND, WROpcode.SEND_WITH_IMM: WCOpcode.SEND,
              WROpcode.RDMA_WRITE: WCOpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM: WCOpcode.RDMA_WRITE,
              WROpcode.RDMA_READ: WCOpcode.RDMA_READ, WROpcode.ATOMIC_CMP_AND_SWP: WCOpcode.COMP_SWAP,
              WROpcode.ATOMIC_FETCH_AND_ADD: WCOpcode.FETCH_ADD}
_SENDS = frozenset({WROpcode.SEND, WROpcode.SEND_WITH_IMM})
_IMM = frozenset({WROpcode.SEND_WITH_IMM, WROpcode.RDMA_WRITE_WITH_IMM})
ATOMIC = {WROpcode.ATOMIC_CMP_AND_SWP: RcOpcode.COMPARE_SWAP, WROpcode.ATOMIC_FETCH_AND_ADD: RcOpcode.FETCH_ADD}
OPCODES = tuple(opcode for opcode in WROpcode if opcode <= WROpcode.ATOMIC_FETCH_AND_ADD)
_IGNORED = SendFlags.SOLICITED     # there are no solicited events


class LocalError(Exception):
    """Local memory of a request that its keys do not, or no longer, permit."""


@dataclass(eq=False)
class Request:
    """Send work request in transmission.

    Attributes
    ----------
    wr_id, opcode, sges, remote_va, rkey, imm, swap_add, compare, signaled, fence
        As posted; ``sges`` are (address, length, lkey).
    length, pmtu : int
        Bytes, and largest payload of a packet.
    first_psn, packets, ssn : int
        First PSN and number of PSNs, which for a READ are those of its response; send sequence number.
    answered : int
        Received packets of the response to a READ or an atomic.
    status : WCStatus
    """

    wr_id: int
    opcode: WROpcode
    sges: list
    remote_va: int = 0
    rkey: int = 0
    imm: int = 0
    swap_add: int = 0
    compare: int = 0
    signaled: bool = True
    fence: bool = False
    length: int = 0
    pmtu: int = 0
    first_psn: int = 0
    packets: int = 1
    ssn: int = 0
    answered: int = 0
    status: WCStatus = field(default=WCStatus.SUCCESS)

    @property
    def end_psn(self):
        """PSN after the last one of the request."""
        return self.first_psn + self.packets

    @property
    def is_read(self):
        return self.opcode is WROpcode.RDMA_READ

    @property
    def responded(self):
        """True for READs and atomics, whose answer is more than an acknowledgement."""
        return self.is_read or self.opcode in ATOMIC

    @property
    def takes_receive(self):
        """True if the request consumes a receive of the peer."""
        return self.opcode in _SENDS or self.opcode in _IMM

    def span(self, number):
        """Return ``(offset, bytes)`` of packet ``number``."""
        offset = number * self.pmtu
        return offset, min(self.pmtu, self.length - offset)

    def packet(self, number, memory, pd):
        """Return packet ``number``, without the fields that the connection adds.

        Raises
        ------
        LocalError
        """
        if self.is_read:
            offset = number * self.pmtu
            return RcPacket(RcOpcode.READ_REQUEST, 0, 0, va=self.remote_va + offset, rkey=self.rkey,
                            dma_length=self.length - offset)
        if self.opcode in ATOMIC:
            return RcPacket(ATOMIC[self.opcode], 0, 0, va=self.remote_va, rkey=self.rkey, swap_add=self.swap_add,
                            compare=self.compare)
        first, last, imm = number == 0, number == self.packets - 1, self.opcode in _IMM
        opcode = (send_opcode if self.opcode in _SENDS else write_opcode)(first, last, imm)
        offset, count = self.span(number)
        payload = b"".join(bytes(view) for view in self._views(offset, count, memory, pd, AccessFlag(0)))
        return RcPacket(opcode, 0, 0, payload=payload, va=self.remote_va, rkey=self.rkey, dma_length=self.length,
                        imm=self.imm)

    def store(self, offset, data, memory, pd):
        """Write received data into the local memory.

        Raises
        ------
        LocalError
        """
        at = 0
        for view in self._views(offset, len(data), memory, pd, AccessFlag.LOCAL_WRITE):
            view[:] = data[at:at + len(view)]
            at += len(view)

    def _views(self, offset, count, memory, pd, access):
        return gather(self.sges, offset, count, memory, pd, access)


def gather(sges, offset, count, memory, pd, access):
    """Return the pieces of memory of ``count`` bytes from ``offset`` on of a scatter-gather list.

    Raises
    ------
    LocalError
        If a key does not permit the access, or the list is too short.
    """
    views = []
    for address, length, lkey in sges:
        if offset < length and count:
            part = min(count, length - offset)
            view = memory.view(pd, lkey, address + offset, part, access)
            if view is None:
                raise LocalError(f"lkey {lkey:#x} does not give {part} bytes at {address + offset:#x}")
            views.append(view)
            count -= part
            offset = 0
        else:
            offset = max(0, offset - length)
    if count:
        raise LocalError(f"{count} bytes too little")
    return views


def send_request(wr, cap, *, signal_all):
    """Return the :class:`Request` of a SendWR.

    Raises
    ------
    ValueError, TypeError
        If a value is invalid.
    """
    opcode = member("opcode", wr.opcode, WROpcode)
    if opcode not in OPCODES:
        raise NotSupported(f"{opcode.name} does not exist here")
    flags = member("send_flags", wr.send_flags, SendFlags) & ~_IGNORED
    if flags & ~(SendFlags.FENCE | SendFlags.SIGNALED):
        raise ValueError("inline data do not exist here")
    sges = sges_of(wr, cap.max_send_sge)
    length = sum(size for _, size, _ in sges)
    if length > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes; at most {MESSAGE_BYTES_MAX}")
    compare, swap_add = wr.compare_add, wr.swap
    if opcode is WROpcode.ATOMIC_FETCH_AND_ADD:
        compare, swap_add = 0, compare
    if opcode in ATOMIC and length != ATOMIC_BYTES:
        raise ValueError(f"an atomic brings {ATOMIC_BYTES} bytes, not {length}")
    remote = unsigned("remote_addr", wr.remote_addr, 64)
    if remote + length > 1 << 64:
        raise ValueError(f"{length} bytes at {remote:#x} end beyond the last address")
    return Request(
        unsigned("wr_id", wr.wr_id, 64), opcode, sges, remote, unsigned("rkey", wr.rkey, 32),
        imm=unsigned("imm_data", wr.imm_data, 32), swap_add=unsigned("swap", swap_add, 64),
        compare=unsigned("compare_add", compare, 64), signaled=bool(signal_all or flags & SendFlags.SIGNALED),
        fence=bool(flags & SendFlags.FENCE), length=length)
