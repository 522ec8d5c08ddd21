"""From work requests of the application to what the engine takes: checked here, before anything is queued."""

from ..engine.qp_engine import COMPLETION_OPCODE
from ..protocol.segment import Request
from ..terms.checks import member, unsigned
from ..terms.enums import SendFlags, WROpcode
from ..terms.errors import InvalidValue, NotSupported

ADDRESS_BITS, WORD_BITS = 64, 32
_EXISTING = SendFlags.FENCE | SendFlags.SIGNALED   # a fence waits for reads and atomics, of which there are none


def send_request(wr, cap, *, signal_all):
    """:class:`~weft.driver.protocol.segment.Request` of a :class:`~weft.driver.verbs.wr.SendWR`.

    Raises
    ------
    ValueError, TypeError
        If one of its values is impossible.
    """
    opcode = member("opcode", wr.opcode, WROpcode)
    if opcode not in COMPLETION_OPCODE:
        raise NotSupported(f"{opcode.name} is not a write")
    flags = member("send_flags", wr.send_flags, SendFlags)
    if int(flags) & ~int(_EXISTING):
        raise NotSupported(f"send_flags is {flags!r}; of these only {_EXISTING!r} exist here")
    sges = _sges(wr, cap.max_send_sge)
    remote = unsigned("remote_addr", wr.remote_addr, ADDRESS_BITS)
    _check_end("the remote range", remote, sum(length for _, length, _ in sges))
    imm = unsigned("imm_data", wr.imm_data, WORD_BITS)
    return Request(
        unsigned("wr_id", wr.wr_id, ADDRESS_BITS),
        sges,
        remote,
        unsigned("rkey", wr.rkey, WORD_BITS),
        imm=imm if opcode is WROpcode.RDMA_WRITE_WITH_IMM else None,
        signaled=bool(signal_all or flags & SendFlags.SIGNALED),
        cookie=opcode,
    )


def check_recv(wr, cap):
    """The same for a :class:`~weft.driver.verbs.wr.RecvWR`, which stays as it is."""
    unsigned("wr_id", wr.wr_id, ADDRESS_BITS)
    _sges(wr, cap.max_recv_sge)


def sges_of(wr, most):
    """(va, length, lkey) of the entries of a scatter-gather list.

    Raises
    ------
    ValueError, TypeError
        If there are more than ``most``, or a value does not fit its field.
    """
    if len(wr.sg) > most:
        raise InvalidValue(f"{len(wr.sg)} SGEs; at most {most}")
    return [(unsigned("addr", sge.addr, ADDRESS_BITS), unsigned("length", sge.length, WORD_BITS),
             unsigned("lkey", sge.lkey, WORD_BITS)) for sge in wr.sg]


def _sges(wr, most):
    """The same; the list is also as long as it says, and within the addresses that there are."""
    sges = sges_of(wr, most)
    if wr.num_sge not in (0, len(sges)):
        raise InvalidValue(f"num_sge is {wr.num_sge}, but there are {len(sges)}")
    for va, length, _ in sges:
        _check_end("an SGE", va, length)
    return sges


def _check_end(what, va, length):
    if va + length > 1 << ADDRESS_BITS:
        raise InvalidValue(f"{what} of {length} bytes at {va:#x} ends behind the last address")
