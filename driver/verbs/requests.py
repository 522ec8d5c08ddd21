"""From work requests of the application to what the engine takes: checked here, before anything is queued."""

from ..operation.operation import COMPLETION_OPCODE, FETCHES, WRITES, Operation
from ..operation.receives import Receive
from ..terms.checks import member, unsigned
from ..terms.enums import SendFlags, WROpcode
from ..terms.errors import InvalidValue, NotSupported

ADDRESS_BITS, WORD_BITS = 64, 32
LENGTH_MAX = (1 << 31) - 1
_WITH_IMM = (WROpcode.SEND_WITH_IMM, WROpcode.RDMA_WRITE_WITH_IMM)
_EXISTING = SendFlags.FENCE | SendFlags.SIGNALED | SendFlags.SOLICITED | SendFlags.INLINE
_NEEDS_ADDRESS = WRITES | FETCHES


def send_operation(wr, cap, memory, *, signal_all):
    """:class:`~weft.driver.operation.operation.Operation` of a :class:`~weft.driver.verbs.wr.SendWR`.

    Inline data are read now, from ``memory``, whatever their keys say; other entries get the card's keys.

    Raises
    ------
    ValueError, TypeError
        If one of its values is impossible.
    """
    opcode = member("opcode", wr.opcode, WROpcode)
    if opcode not in COMPLETION_OPCODE:
        raise NotSupported(f"{opcode.name} does not exist here")
    flags = member("send_flags", wr.send_flags, SendFlags)
    if int(flags) & ~int(_EXISTING):
        raise NotSupported(f"send_flags is {flags!r}; of these only {_EXISTING!r} exist here")
    sges = _sges(wr, cap.max_send_sge, memory)
    length = sum(n for _, n, _ in sges)
    if length > LENGTH_MAX:
        raise InvalidValue(f"{length} bytes; a work request has {LENGTH_MAX} at most")
    inline = None
    if flags & SendFlags.INLINE:
        if opcode in FETCHES:
            raise InvalidValue(f"{opcode.name} has no data that could be inline")
        if length > cap.max_inline_data:
            raise InvalidValue(f"{length} bytes inline; max_inline_data is {cap.max_inline_data}")
        inline = memory.gather(sges)
    remote = unsigned("remote_addr", wr.remote_addr, ADDRESS_BITS)
    if opcode in _NEEDS_ADDRESS:
        _check_end("the remote range", remote, length)
    imm = unsigned("imm_data", wr.imm_data, WORD_BITS)
    return Operation(
        unsigned("wr_id", wr.wr_id, ADDRESS_BITS),
        opcode,
        sges,
        remote,
        unsigned("rkey", wr.rkey, WORD_BITS),
        imm=imm if opcode in _WITH_IMM else None,
        signaled=bool(signal_all or flags & SendFlags.SIGNALED),
        fence=bool(flags & SendFlags.FENCE),
        solicited=bool(flags & SendFlags.SOLICITED),
        inline=inline,
        compare_add=unsigned("compare_add", wr.compare_add, ADDRESS_BITS),
        swap=unsigned("swap", wr.swap, ADDRESS_BITS),
    )


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
    try:
        if len(sg) > most:
            raise InvalidValue(f"{len(sg)} SGEs; at most {most}")
        return [(unsigned("addr", sge.addr, ADDRESS_BITS), unsigned("length", sge.length, WORD_BITS),
                 unsigned("lkey", sge.lkey, WORD_BITS)) for sge in sg]
    except AttributeError:
        raise TypeError(f"sg is {sg!r}; a list of SGE is needed") from None


def _sges(wr, most, memory):
    """(va, length, the card's key); the list is also as long as it says, and within the addresses that there are."""
    sges = sges_of(wr, most)
    if wr.num_sge not in (0, len(sges)):
        raise InvalidValue(f"num_sge is {wr.num_sge}, but there are {len(sges)}")
    for va, length, _ in sges:
        _check_end("an SGE", va, length)
    return [(va, length, memory.card_keys[lkey]) for va, length, lkey in sges]


def _check_end(what, va, length):
    if va + length > 1 << ADDRESS_BITS:
        raise InvalidValue(f"{what} of {length} bytes at {va:#x} ends behind the last address")
