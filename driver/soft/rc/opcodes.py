"""Opcodes of reliable connections, and the extended headers of each (IBTA 1.7, tables 38 and 39, annex A17)."""

import enum

from weft.hdl.contract.layout import Field, Layout
from weft.hdl.contract.wire import AETH, CNPH, IMMDT, RETH


class RcOpcode(enum.IntEnum):
    """BTH opcodes of the RC service."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_IMM = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_IMM = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    CNP = 0x81


ATOMICETH = Layout("AtomicETH", "Atomic extended header.", [
    Field("va", 64, "Virtual address of the 8 bytes."), Field("rkey", 32, "Remote key."),
    Field("swap_add", 64, "What to swap in, or to add."), Field("compare", 64, "What to compare with."),
], size_bytes=28, byteorder="big")
ATOMICACKETH = Layout("AtomicAckETH", "Atomic acknowledge extended header.", [
    Field("original", 64, "What was there before.")], size_bytes=8, byteorder="big")

O = RcOpcode   # noqa: E741 short for the tables below
EXTENSIONS = dict.fromkeys(O, ()) | {
    O.SEND_LAST_IMM: (IMMDT,), O.SEND_ONLY_IMM: (IMMDT,), O.WRITE_FIRST: (RETH,), O.WRITE_LAST_IMM: (IMMDT,),
    O.WRITE_ONLY: (RETH,), O.WRITE_ONLY_IMM: (RETH, IMMDT), O.READ_REQUEST: (RETH,), O.READ_RESPONSE_FIRST: (AETH,),
    O.READ_RESPONSE_LAST: (AETH,), O.READ_RESPONSE_ONLY: (AETH,), O.ACKNOWLEDGE: (AETH,),
    O.CNP: (CNPH,), O.ATOMIC_ACKNOWLEDGE: (AETH, ATOMICACKETH), O.COMPARE_SWAP: (ATOMICETH,), O.FETCH_ADD: (ATOMICETH,)}

SENDS = frozenset(o for o in O if o.name.startswith("SEND"))
WRITES = frozenset(o for o in O if o.name.startswith("WRITE"))
ATOMICS = frozenset({O.COMPARE_SWAP, O.FETCH_ADD})
READ_RESPONSES = frozenset(o for o in O if o.name.startswith("READ_RESPONSE"))
RESPONSES = READ_RESPONSES | {O.ACKNOWLEDGE, O.ATOMIC_ACKNOWLEDGE}
STARTS = frozenset(o for o in SENDS | WRITES if "FIRST" in o.name or "ONLY" in o.name)
ENDS = frozenset(o for o in SENDS | WRITES if "LAST" in o.name or "ONLY" in o.name)
WITH_IMM = frozenset(o for o in O if o.name.endswith("_IMM"))
WITHOUT_PAYLOAD = ATOMICS | {O.READ_REQUEST, O.ACKNOWLEDGE, O.ATOMIC_ACKNOWLEDGE, O.CNP}

_SEND = (O.SEND_FIRST, O.SEND_MIDDLE, O.SEND_LAST, O.SEND_LAST_IMM, O.SEND_ONLY, O.SEND_ONLY_IMM)
_WRITE = (O.WRITE_FIRST, O.WRITE_MIDDLE, O.WRITE_LAST, O.WRITE_LAST_IMM, O.WRITE_ONLY, O.WRITE_ONLY_IMM)
_READ = (O.READ_RESPONSE_FIRST, O.READ_RESPONSE_MIDDLE, O.READ_RESPONSE_LAST, None, O.READ_RESPONSE_ONLY, None)


def _place(row, first, last, imm):
    if first:
        return row[(5 if imm else 4) if last else 0]
    return row[(3 if imm else 2) if last else 1]


def send_opcode(first, last, imm):
    """Return the opcode of a packet of a SEND, by its position in the message."""
    return _place(_SEND, first, last, imm)


def write_opcode(first, last, imm):
    """Return the opcode of a packet of a WRITE, by its position in the message."""
    return _place(_WRITE, first, last, imm)


def response_opcode(first, last):
    """Return the opcode of a packet of the response to a READ, by its position."""
    return _place(_READ, first, last, False)
