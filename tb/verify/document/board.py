"""The board's own registers, as a table."""

from weft.hdl.board.mac_side import EVENTS
from weft.hdl.board.registers import CONTROL, CONTROL_BITS, COUNTERS, ID, MAGIC, STATUS, STATUS_BITS


def register_table():
    """Offset, name and meaning of each."""
    rows = [(ID, "id", f"{MAGIC:#x}: \"WEFT\", and the board")]
    rows += [(CONTROL, f"control, bit {bit}", f"`{name}`: {text}") for bit, (name, text) in enumerate(CONTROL_BITS)]
    rows += [(STATUS, "status", "from bit 0: " + ", ".join(f"`{name}`" for name in STATUS_BITS))]
    rows += [(COUNTERS + 8 * index, name, text) for index, (name, _, text) in enumerate(EVENTS)]
    return "\n".join(["| offset | register | what it says |", "| --- | --- | --- |",
                      *(f"| {offset:#05x} | {name} | {text} |" for offset, name, text in rows)])
