"""Checks and address translation of the card, as plain functions on plain tables.

The tables are dictionaries by index: ``qp_table`` of :class:`QpEntry`, ``mr_table`` of :class:`MrEntry`,
``page_table`` of physical addresses. What is missing is not there.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from weft.hdl.contract.abi import KEY_TAG_BITS, PAGE_2M, PAGE_4K, REMOTE_ACCESS, AccessFlag, QpState, Reason
from weft.hdl.contract.wire import PMTUS

PAYLOAD_MAX = max(PMTUS.values())
CAN_RECEIVE, CAN_SEND = 0, 1  # values of Request.qp_need
# Plain numbers: flags are slow to combine.
_LOCAL_WRITE, _REMOTE_WRITE = int(AccessFlag.LOCAL_WRITE), int(AccessFlag.REMOTE_WRITE)
_REMOTE_ACCESS = int(REMOTE_ACCESS)


@dataclass(frozen=True)
class QpEntry:
    """A QP as the card sees it."""

    state: int = QpState.RESET
    generation: int = 0
    pd: int = 0
    access: int = 0
    peer_ip: int = 0
    psn_guard: int = 0


NO_QP = QpEntry()


@dataclass(frozen=True)
class MrEntry:
    """A memory region: ``length`` bytes from virtual address ``va``, pages from entry ``pte_index`` on."""

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
        """The peer may write it and the host may not: it belongs to the QP whose index is ``pd``, whatever that one
        permits."""
        return bool(self.access & _REMOTE_WRITE and not self.access & _LOCAL_WRITE)

    @cached_property
    def page_bytes(self):
        return PAGE_2M if self.page_2m else PAGE_4K

    @property
    def pages(self):
        """Page-table entries it needs."""
        return page_count(self.va, self.length, self.page_bytes)


class Request(NamedTuple):
    """An access: ``need`` are the AccessFlag bits it takes, ``qp_need`` whether the QP must receive or send.

    ``qpn`` is the index of the QP, ``generation`` the life that a packet is for; whoever sends names none.
    """

    key: int
    va: int
    length: int
    need: int
    qpn: int
    qp_need: int = CAN_RECEIVE
    generation: int = 0


class Result(NamedTuple):
    """``segments``: physical pieces (address, length), none crossing a page; empty unless ``reason`` is OK."""

    reason: Reason
    segments: tuple = ()
    qp: QpEntry = NO_QP


def page_count(va, length, page_bytes):
    """Pages that ``length`` bytes from ``va`` on touch."""
    return (va % page_bytes + length + page_bytes - 1) // page_bytes


def check(qp_table, mr_table, request):
    """Reason why the access is refused, or OK."""
    qp = qp_table.get(request.qpn, NO_QP)
    if qp.state == QpState.RESET:
        return Reason.UNKNOWN_QP
    if request.qp_need == CAN_RECEIVE and request.generation != qp.generation:
        return Reason.STALE_GENERATION
    if qp.state not in ((QpState.RTS,) if request.qp_need == CAN_SEND else (QpState.RTR, QpState.RTS)):
        return Reason.UNKNOWN_QP
    if request.length == 0:
        return Reason.OK
    mr = mr_table.get(request.key >> KEY_TAG_BITS)
    if mr is None or not mr.valid or mr.key_tag != request.key & (1 << KEY_TAG_BITS) - 1:
        return Reason.BAD_KEY
    if mr.pd != (request.qpn if mr.window else qp.pd):
        return Reason.WRONG_PD
    end = request.va + request.length
    if end > 1 << 64 or request.length > PAYLOAD_MAX or request.va < mr.va or end > mr.va + mr.length:
        return Reason.OUT_OF_RANGE
    if request.need & ~mr.access or request.need & _REMOTE_ACCESS & ~qp.access and not mr.window:
        return Reason.NO_PERMISSION
    return Reason.OK


def translate(qp_table, mr_table, page_table, request):
    """Check an access and find where its bytes are.

    Returns
    -------
    Result
    """
    qp = qp_table.get(request.qpn, NO_QP)
    reason = check(qp_table, mr_table, request)
    if reason != Reason.OK or request.length == 0:
        return Result(reason, (), qp)
    mr = mr_table[request.key >> KEY_TAG_BITS]
    size = mr.page_bytes
    segments, va, left = [], request.va, request.length
    while left:
        page = page_table[mr.pte_index + va // size - mr.va // size]
        piece = min(left, size - va % size)
        segments.append((page // size * size + va % size, piece))
        va, left = va + piece, left - piece
    return Result(reason, tuple(segments), qp)
