"""Work requests of a software queue pair: those of the verbs, validated when they are posted."""

from ...protocol.segment import MESSAGE_BYTES_MAX
from ...terms.checks import member, unsigned
from ...terms.enums import SendFlags, WROpcode
from ...terms.errors import NotSupported
from ...verbs.requests import sges_of
from .request import ATOMIC, ATOMIC_BYTES, Request

OPCODES = tuple(opcode for opcode in WROpcode if opcode <= WROpcode.ATOMIC_FETCH_AND_ADD)
_IGNORED = SendFlags.SOLICITED     # there are no solicited events


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
