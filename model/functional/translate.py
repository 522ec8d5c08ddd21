"""Access checks and address translation of the card, as plain functions on plain tables.

The tables are dictionaries by index: ``qp_table`` of :class:`QpEntry`, ``mr_table`` of :class:`MrEntry`,
``page_table`` of physical addresses. Invalid entries are missing in them.
"""

from dataclasses import dataclass
from functools import cached_property

from weft.hdl.contract.abi import KEY_TAG_BITS, PAGE_2M, PAGE_4K, REMOTE_ACCESS, AccessFlag, QpState, Reason
from weft.hdl.contract.wire import PMTUS

PAYLOAD_MAX = max(PMTUS.values())
CAN_RECEIVE, CAN_SEND = 0, 1  # values of Request.qp_need
# Plain integers, because operations on flags are slow; names, because each access to a member of an enum is.
_LOCAL_WRITE, _REMOTE_WRITE = int(AccessFlag.LOCAL_WRITE), int(AccessFlag.REMOTE_WRITE)
_REMOTE_ACCESS = int(REMOTE_ACCESS)
_RESET, _OK = QpState.RESET, Reason.OK
_ABLE = {CAN_RECEIVE: (QpState.RTS, QpState.RTR), CAN_SEND: (QpState.RTS,)}
_TAG_MASK = (1 << KEY_TAG_BITS) - 1


@dataclass(frozen=True)
class QpEntry:
    """QP table entry of the card."""

    state: int = QpState.RESET
    generation: int = 0
    pd: int = 0
    access: int = 0
    peer_ip: int = 0
    psn_guard: int = 0


NO_QP = QpEntry()


@dataclass(frozen=True)
class MrEntry:
    """Memory region of ``length`` bytes from virtual address ``va``; its pages start at entry ``pte_index``."""

    key_tag: int
    access: int
    pd: int
    va: int
    length: int
    pte_index: int
    page_2m: int = 0
    valid: int = 1

    @cached_property
    def window(self):
        """True for a memory window, which the peer may write and the host may not.

        It belongs to the QP with index ``pd``; the access flags of that QP do not apply.
        """
        return bool(self.access & _REMOTE_WRITE and not self.access & _LOCAL_WRITE)

    @cached_property
    def page_bytes(self):
        return PAGE_2M if self.page_2m else PAGE_4K

    @cached_property
    def first_pte(self):
        """Page-table entry of address 0, if the region contained it."""
        return self.pte_index - self.va // self.page_bytes

    @property
    def pages(self):
        """Number of page-table entries of the region."""
        return page_count(self.va, self.length, self.page_bytes)


@dataclass(slots=True)
class Request:
    """Access that requires the AccessFlag bits ``need``; ``qp_need``: the QP must be able to receive or to send.

    ``qpn`` is the index of the QP. ``generation`` is that of a received packet; requests to send leave it 0.
    """

    key: int
    va: int
    length: int
    need: int
    qpn: int
    qp_need: int = CAN_RECEIVE
    generation: int = 0


@dataclass(slots=True)
class Result:
    """Result of a translation.

    ``segments``: physical pieces (address, length), none crossing a page; empty unless ``reason`` is OK.
    """

    reason: Reason
    segments: tuple = ()
    qp: QpEntry = NO_QP


def page_count(va, length, page_bytes):
    """Return the number of pages that ``length`` bytes from ``va`` on touch."""
    return (va % page_bytes + length + page_bytes - 1) // page_bytes


def check_qp(qp, request):
    """Return the reason to reject the access because of the state of its QP, or OK."""
    if qp.state == _RESET:
        return Reason.UNKNOWN_QP
    if request.qp_need == CAN_RECEIVE and request.generation != qp.generation:
        return Reason.STALE_GENERATION
    return _OK if qp.state in _ABLE[request.qp_need] else Reason.UNKNOWN_QP


def locate(qp, mr_table, page_table, request):
    """Check an access of a QP that may make it to memory, and translate its addresses; return (reason, segments)."""
    va, left = request.va, request.length
    if not left:
        return _OK, ()
    mr = mr_table.get(request.key >> KEY_TAG_BITS)
    if mr is None or not mr.valid or mr.key_tag != request.key & _TAG_MASK:
        return Reason.BAD_KEY, ()
    if mr.pd != (request.qpn if mr.window else qp.pd):
        return Reason.WRONG_PD, ()
    end = va + left
    if end > 1 << 64 or left > PAYLOAD_MAX or va < mr.va or end > mr.va + mr.length:
        return Reason.OUT_OF_RANGE, ()
    if request.need & ~mr.access or request.need & _REMOTE_ACCESS & ~qp.access and not mr.window:
        return Reason.NO_PERMISSION, ()
    size, first, segments = mr.page_bytes, mr.first_pte, ()
    while True:
        at = va % size
        address = page_table[first + va // size] // size * size + at
        if left <= size - at:
            return _OK, (*segments, (address, left))
        piece = size - at
        segments += ((address, piece),)
        va, left = va + piece, left - piece


def translate(qp_table, mr_table, page_table, request):
    """Check an access, with the state of its QP, and translate its addresses.

    Returns
    -------
    Result
    """
    qp = qp_table.get(request.qpn, NO_QP)
    reason = check_qp(qp, request)
    if reason is not _OK:
        return Result(reason, (), qp)
    return Result(*locate(qp, mr_table, page_table, request), qp)
