"""Validation of work requests of the verbs and of served programs, before they are queued."""

import struct
from collections.abc import Mapping, Sequence
from typing import NoReturn

from weft.hdl.contract import wire

from ..datagram.request import DatagramRequest
from ..operation.memory import Memory, total
from ..operation.operation import COMPLETION_OPCODE, FETCHES, SENDS, WRITES, Operation
from ..operation.receives import Receive
from ..protocol.segment import MESSAGE_BYTES_MAX
from ..terms.checks import member, unsigned
from ..terms.enums import SendFlags, WROpcode
from ..terms.errors import InvalidValue, NotSupported
from .addr import AH
from .qp_init_attr import QPCap
from .wr import SGE, RecvWR, SendWR

ADDRESS_BITS, WORD_BITS = 64, 32
OPCODES = {int(opcode): opcode for opcode in COMPLETION_OPCODE}
_WITH_IMM = frozenset({WROpcode.SEND_WITH_IMM, WROpcode.RDMA_WRITE_WITH_IMM})
_EXISTING = SendFlags.FENCE | SendFlags.SIGNALED | SendFlags.SOLICITED | SendFlags.INLINE
_NEEDS_ADDRESS = WRITES | FETCHES
_ADDRESSES = 1 << ADDRESS_BITS
# Send flags -> (signaled, fence, solicited, inline).
FLAGS = {flags: tuple(bool(flags & one) for one in (
    SendFlags.SIGNALED, SendFlags.FENCE, SendFlags.SOLICITED, SendFlags.INLINE)) for flags in range(_EXISTING + 1)}
# Packing checks that all values are integers that fit their fields. If it fails, each field is checked separately, for
# a precise error message.
_USUAL, _SGE = struct.Struct("<QQIIQQQII"), struct.Struct("<QII")
_pack_usual, _unpack_usual = _USUAL.pack, _USUAL.unpack
_ONE_SGE = (0, 1)     # values of ``num_sge`` for a list of one entry: 0 means the whole list
_NAMES = (("wr_id", ADDRESS_BITS), ("remote_addr", ADDRESS_BITS), ("rkey", WORD_BITS), ("imm_data", WORD_BITS),
          ("compare_add", ADDRESS_BITS), ("swap", ADDRESS_BITS))


def send_operation(wr: SendWR, cap: QPCap, memory: Memory, *, signal_all: bool) -> Operation:
    """Return the :class:`~weft.driver.operation.operation.Operation` of a :class:`~weft.driver.verbs.wr.SendWR`.

    Inline data is read now, from ``memory``, without a check of its keys; in other entries the card's keys replace the
    local keys.

    Raises
    ------
    ValueError, TypeError
        If a value is invalid.
    """
    numbers: Sequence[int]
    try:      # common case: one entry, and every value fits its field
        (sge,) = wr.sg
        wr_id, remote, rkey, imm, compare, swap, va, length, lkey = _unpack_usual(_pack_usual(
            wr.wr_id, wr.remote_addr, wr.rkey, wr.imm_data, wr.compare_add, wr.swap, sge.addr, sge.length, sge.lkey))
        opcode, flags, numbers = OPCODES[wr.opcode], FLAGS[wr.send_flags], (wr_id, remote, rkey, imm, compare, swap)
        sges = [(va, length, memory.card_keys[lkey])]
        usual = wr.num_sge in _ONE_SGE and cap.max_send_sge
    except (struct.error, TypeError, ValueError, AttributeError, KeyError):
        usual = False
    if not usual:
        opcode, flags = _kind(wr)
        numbers, sges = _numbers(wr), _listed(wr, cap.max_send_sge, memory.card_keys)
    inline = None
    if flags[3] and opcode not in FETCHES:
        if (length := total(sges)) > cap.max_inline_data:
            raise InvalidValue(f"{length} bytes inline; max_inline_data is {cap.max_inline_data}")
        inline = memory.gather(sges)
    return operation_of(opcode, (True, *flags[1:]) if signal_all else flags, numbers, sges, inline,
                        wr.next_wr is not None)


def datagram_request(wr: SendWR, cap: QPCap, memory: Memory, *, signal_all: bool) -> DatagramRequest:
    """Return the :class:`~weft.driver.datagram.request.DatagramRequest` of a work request of a UD QP.

    Raises
    ------
    ValueError, TypeError
        If a value is invalid.
    """
    opcode, (signaled, _, solicited, inlined) = _kind(wr)
    if opcode not in SENDS:
        raise InvalidValue(f"a UD queue pair has no {opcode.name}, only SEND and SEND_WITH_IMM")
    if not isinstance(wr.ah, AH):
        raise InvalidValue("a datagram needs an address handle: set_wr_ud(ah, rqpn, rqkey)")
    wr_id, _, _, imm, _, _ = _numbers(wr)
    sges = _listed(wr, cap.max_send_sge, memory.card_keys)
    for va, size, _ in sges:
        if va + size > _ADDRESSES:
            _raise_end("an SGE", va, size)
    if inlined and total(sges) > cap.max_inline_data:
        raise InvalidValue(f"{total(sges)} bytes inline; max_inline_data is {cap.max_inline_data}")
    return DatagramRequest(
        wr_id, opcode, sges, total(sges), wr.ah.ip, unsigned("rqpn", wr.remote_qpn, wire.QPN_BITS),
        unsigned("rqkey", wr.remote_qkey, WORD_BITS), wr.ah.flow_label, imm if opcode in _WITH_IMM else None,
        signal_all or signaled, solicited, memory.gather(sges) if inlined else None)


def operation_of(opcode: WROpcode, flags: tuple[bool, ...], numbers: Sequence[int],
                 sges: Sequence[tuple[int, int, int]], inline: bytes | None = None,
                 followed: bool = False) -> Operation:
    """Return the :class:`~weft.driver.operation.operation.Operation` of a send work request.

    Parameters
    ----------
    opcode : WROpcode
    flags : tuple of bool
        As in :data:`FLAGS`.
    numbers : tuple of int
        ``wr_id, remote_addr, rkey, imm_data, compare_add, swap``; each fits its field.
    sges : list of (va, length, card's key)
    inline : bytes or None
        Inline data, sent instead of the memory of ``sges``.
    followed : bool
        The next request is posted together with this one.

    Raises
    ------
    InvalidValue
        If a range ends after the last address, the data is too long, or a request that fetches data is inline.
    """
    wr_id, remote, rkey, imm, compare_add, swap = numbers
    signaled, fence, solicited, inlined = flags
    if inlined and opcode in FETCHES:
        raise InvalidValue(f"{opcode.name} has no data that could be inline")
    length = 0 if inline is None else len(inline)
    for va, size, _ in sges if inline is None else ():
        if va + size > _ADDRESSES:
            _raise_end("an SGE", va, size)
        length += size
    if length > MESSAGE_BYTES_MAX:
        raise InvalidValue(f"{length} bytes; a work request has {MESSAGE_BYTES_MAX} at most")
    if remote + length > _ADDRESSES and opcode in _NEEDS_ADDRESS:
        _raise_end("the remote range", remote, length)
    return Operation(wr_id, opcode, sges, length, remote, rkey, imm if opcode in _WITH_IMM else None, signaled, fence,
                     solicited, inline, compare_add, swap, followed)


def _kind(wr: SendWR) -> tuple[WROpcode, tuple[bool, ...]]:
    """Return the opcode of a request, and its flags as in :data:`FLAGS`."""
    try:
        opcode, flags = OPCODES.get(wr.opcode), FLAGS.get(wr.send_flags)
    except TypeError:
        raise TypeError(f"opcode is {wr.opcode!r}, send_flags {wr.send_flags!r}; numbers are needed") from None
    if opcode is None:
        raise NotSupported(f"{member('opcode', wr.opcode, WROpcode).name} does not exist here")
    if flags is None:
        flags = member("send_flags", wr.send_flags, SendFlags)
        raise NotSupported(f"send_flags is {flags!r}; of these only {_EXISTING!r} exist here")
    return opcode, flags


def _numbers(wr: SendWR) -> list[int]:
    """Return the numbers of a work request, in the order of ``_NAMES``."""
    return [unsigned(name, getattr(wr, name), bits) for name, bits in _NAMES]


def receive_request(wr: RecvWR, most: int, memory: Memory) -> Receive:
    """Return the :class:`~weft.driver.operation.receives.Receive` of a :class:`~weft.driver.verbs.wr.RecvWR`."""
    wr_id, sges = unsigned("wr_id", wr.wr_id, ADDRESS_BITS), _listed(wr, most, memory.card_keys)
    for va, length, _ in sges:
        if va + length > _ADDRESSES:
            _raise_end("an SGE", va, length)
    return Receive(wr_id, sges)


def sges_of(wr: SendWR | RecvWR, most: int) -> list[tuple[int, int, int]]:
    """Return ``(va, length, lkey)`` of each entry of a scatter-gather list.

    Raises
    ------
    ValueError, TypeError
        If the list has more than ``most`` entries, or a value does not fit its field.
    """
    sg = wr.sg or ()
    if not hasattr(sg, "__len__"):
        raise TypeError(f"sg is {sg!r}; a list of SGE is needed")
    if len(sg) > most:
        raise InvalidValue(f"{len(sg)} SGEs; at most {most}")
    try:
        return [_sge(sge) for sge in sg]
    except AttributeError:
        raise TypeError(f"sg is {sg!r}; a list of SGE is needed") from None


def _listed(wr: SendWR | RecvWR, most: int, card_keys: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return ``(va, length, card's key)`` of each entry of the list.

    Raises InvalidValue if the length of the list differs from ``num_sge`` and that is not 0.
    """
    sges = sges_of(wr, most)
    if wr.num_sge not in (0, len(sges)):
        raise InvalidValue(f"num_sge is {wr.num_sge}, but there are {len(sges)}")
    return [(va, length, card_keys[lkey]) for va, length, lkey in sges]


def _sge(sge: SGE) -> tuple[int, int, int]:
    try:
        return _SGE.unpack(_SGE.pack(sge.addr, sge.length, sge.lkey))
    except struct.error:
        return (unsigned("addr", sge.addr, ADDRESS_BITS), unsigned("length", sge.length, WORD_BITS),
                unsigned("lkey", sge.lkey, WORD_BITS))


def _raise_end(subject: str, va: int, length: int) -> NoReturn:
    raise InvalidValue(f"{subject} of {length} bytes at {va:#x} ends beyond the last address")
