"""From work requests of the application to what the engine takes: checked here, before anything is queued."""

import struct

from ..operation.memory import total
from ..operation.operation import COMPLETION_OPCODE, FETCHES, WRITES, Operation, WriteOperation
from ..operation.receives import Receive
from ..terms.checks import member, unsigned
from ..terms.enums import SendFlags, WROpcode
from ..terms.errors import InvalidValue, NotSupported

ADDRESS_BITS, WORD_BITS = 64, 32
LENGTH_MAX = (1 << 31) - 1
_WITH_IMM = (WROpcode.SEND_WITH_IMM, WROpcode.RDMA_WRITE_WITH_IMM)
_EXISTING = SendFlags.FENCE | SendFlags.SIGNALED | SendFlags.SOLICITED | SendFlags.INLINE
_NEEDS_ADDRESS = WRITES | FETCHES
_OPCODES = {int(opcode): opcode for opcode in COMPLETION_OPCODE}
_ADDRESSES = 1 << ADDRESS_BITS
_WRITE, _ONE_SGE = int(WROpcode.RDMA_WRITE), (0, 1)     # an SGE that is there counts, said or not
# Flags -> whether they have each of these.
_FLAGS = {flags: tuple(bool(flags & one) for one in (
    SendFlags.SIGNALED, SendFlags.FENCE, SendFlags.SOLICITED, SendFlags.INLINE)) for flags in range(_EXISTING + 1)}
# What fits these is an integer of that many bits; what does not is looked at field by field, for a sentence.
_USUAL = struct.Struct("<QQIIQQQII")
_NUMBERS, _SGE = struct.Struct("<QQIIQQ"), struct.Struct("<QII")
_NAMES = (("wr_id", ADDRESS_BITS), ("remote_addr", ADDRESS_BITS), ("rkey", WORD_BITS), ("imm_data", WORD_BITS),
          ("compare_add", ADDRESS_BITS), ("swap", ADDRESS_BITS))


def plain_write(wr, cap, card_keys, *, signal_all):
    """The same as :func:`send_operation` of a write from one SGE in which nothing is wrong, or None: a short way for
    what is posted most."""
    try:
        signaled, fence, solicited, inlined = _FLAGS[wr.send_flags]
        (sge,) = wr.sg
        wr_id, remote, rkey, _, _, _, va, length, lkey = _USUAL.unpack(_USUAL.pack(
            wr.wr_id, wr.remote_addr, wr.rkey, wr.imm_data, wr.compare_add, wr.swap, sge.addr, sge.length, sge.lkey))
        if (wr.opcode != _WRITE or inlined or wr.num_sge not in _ONE_SGE or not cap.max_send_sge
                or length > LENGTH_MAX or va + length > _ADDRESSES or remote + length > _ADDRESSES):
            return None
    except (struct.error, TypeError, ValueError, AttributeError, KeyError):
        return None
    return WriteOperation(wr_id, va, length, card_keys[lkey], remote, rkey, signal_all or signaled, fence, solicited,
                          wr.next_wr is not None)


def send_operation(wr, cap, memory, *, signal_all):
    """:class:`~weft.driver.operation.operation.Operation`, or ``WriteOperation``, of a
    :class:`~weft.driver.verbs.wr.SendWR`.

    Inline data are read now, from ``memory``, whatever their keys say; other entries get the card's keys.

    Raises
    ------
    ValueError, TypeError
        If one of its values is impossible.
    """
    opcode, (signaled, fence, solicited, inlined) = _kind(wr)
    wr_id, remote, rkey, imm, compare_add, swap, sges, length = _usual(wr, cap, memory) or _checked(wr, cap, memory)
    if length > LENGTH_MAX:
        raise InvalidValue(f"{length} bytes; a work request has {LENGTH_MAX} at most")
    inline = None
    if inlined:
        if opcode in FETCHES:
            raise InvalidValue(f"{opcode.name} has no data that could be inline")
        if length > cap.max_inline_data:
            raise InvalidValue(f"{length} bytes inline; max_inline_data is {cap.max_inline_data}")
        inline = memory.gather(sges)
    if opcode in _NEEDS_ADDRESS and remote + length > _ADDRESSES:
        _raise_end("the remote range", remote, length)
    if opcode is WROpcode.RDMA_WRITE and inline is None and len(sges) == 1:
        return WriteOperation(wr_id, *sges[0], remote, rkey, signal_all or signaled, fence, solicited,
                              wr.next_wr is not None)
    return Operation(wr_id, opcode, sges, remote, rkey, imm if opcode in _WITH_IMM else None, signal_all or signaled,
                     fence, solicited, inline, compare_add, swap, wr.next_wr is not None)


def _kind(wr):
    """The opcode of a request, and what its flags say."""
    try:
        opcode, flags = _OPCODES.get(wr.opcode), _FLAGS.get(wr.send_flags)
    except TypeError:
        raise TypeError(f"opcode is {wr.opcode!r}, send_flags {wr.send_flags!r}; numbers are needed") from None
    if opcode is None:
        raise NotSupported(f"{member('opcode', wr.opcode, WROpcode).name} does not exist here")
    if flags is None:
        flags = member("send_flags", wr.send_flags, SendFlags)
        raise NotSupported(f"send_flags is {flags!r}; of these only {_EXISTING!r} exist here")
    return opcode, flags


def _usual(wr, cap, memory):
    """What :func:`_checked` says of a request with one entry, or None if it is not that, or not all right."""
    try:
        (sge,) = wr.sg
        *numbers, va, length, lkey = _USUAL.unpack(_USUAL.pack(
            wr.wr_id, wr.remote_addr, wr.rkey, wr.imm_data, wr.compare_add, wr.swap, sge.addr, sge.length, sge.lkey))
        if wr.num_sge not in (0, 1) or not cap.max_send_sge or va + length > _ADDRESSES:
            return None
    except (struct.error, TypeError, ValueError, AttributeError):
        return None
    return *numbers, [(va, length, memory.card_keys[lkey])], length


def _checked(wr, cap, memory):
    """The numbers of a request, its scatter-gather list, and how many bytes that is."""
    sges = _sges(wr, cap.max_send_sge, memory)
    return *_numbers(wr), sges, total(sges)


def _numbers(wr):
    """The numbers of a work request, in the order of ``_NAMES``."""
    try:
        return _NUMBERS.unpack(_NUMBERS.pack(wr.wr_id, wr.remote_addr, wr.rkey, wr.imm_data, wr.compare_add, wr.swap))
    except struct.error:
        return [unsigned(name, getattr(wr, name), bits) for name, bits in _NAMES]


def receive_request(wr, max_sge, memory):
    """:class:`~weft.driver.operation.receives.Receive` of a :class:`~weft.driver.verbs.wr.RecvWR`."""
    return Receive(unsigned("wr_id", wr.wr_id, ADDRESS_BITS), _sges(wr, max_sge, memory))


def sges_of(wr, most):
    """(va, length, lkey) of the entries of a scatter-gather list.

    Raises
    ------
    ValueError, TypeError
        If there are more than ``most``, or a value does not fit its field.
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


def _sge(sge):
    try:
        return _SGE.unpack(_SGE.pack(sge.addr, sge.length, sge.lkey))
    except struct.error:
        return (unsigned("addr", sge.addr, ADDRESS_BITS), unsigned("length", sge.length, WORD_BITS),
                unsigned("lkey", sge.lkey, WORD_BITS))


def _sges(wr, most, memory):
    """(va, length, the card's key); the list is also as long as it says, and within the addresses that there are."""
    sges = sges_of(wr, most)
    if wr.num_sge not in (0, len(sges)):
        raise InvalidValue(f"num_sge is {wr.num_sge}, but there are {len(sges)}")
    for va, length, _ in sges:
        if va + length > _ADDRESSES:
            _raise_end("an SGE", va, length)
    card_keys = memory.card_keys
    return [(va, length, card_keys[lkey]) for va, length, lkey in sges]


def _raise_end(what, va, length):
    raise InvalidValue(f"{what} of {length} bytes at {va:#x} ends behind the last address")
