"""Register map and host-visible layouts as Markdown, from :mod:`weft.hdl.contract.abi`."""

from collections.abc import Iterable, Sequence

from weft.hdl.contract import abi
from weft.hdl.contract.layout import Layout

_ACCESS = {abi.Access.RO: "read only", abi.Access.RW: "read/write", abi.Access.DOORBELL: "doorbell"}
_LAYOUTS = [
    ("Descriptors, host to card", (abi.WORK, abi.WORK_INLINE, abi.INLINE_DATA, abi.COMMAND, abi.NIC_TX,
                                   abi.NIC_TX_INLINE, abi.NIC_TX_DATA)),
    ("Entries, card to host", (abi.RESPONSE, abi.REPORT_NODE, abi.REPORT_RETIRE, abi.REPORT_EVENT, abi.NIC_RX)),
    ("Memory", (abi.NODE, abi.STATUS_BLOCK)),
    ("Words of registers", (abi.LINK_DOORBELL, abi.CUM_DOORBELL, abi.HOST_QPNS, abi.PFC_WORD)),
]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows))


def _layout(layout: Layout) -> str:
    rows, at = [], 0
    for field in layout.fields:
        high = at + field.width - 1
        if not field.name.startswith("_"):
            bits = f"{high}:{at}" if field.width > 1 else f"{at}"
            rows.append((bits, f"`{field.name}`", field.doc.replace("|", "\\|")))
        at = high + 1
    return f"### {layout.name}\n\n{layout.doc}\n\n{table(('bits', 'field', 'meaning'), rows)}"


def _reset(register: abi.Register) -> str:
    """Return the value of a register after a reset; that of a capability is the preset's."""
    if register.name.startswith("cap_"):
        return "preset"
    return f"{register.reset:#x}" if register.reset else "0"


def _pages() -> str:
    """Return the pages of the push windows, as the beginning of a sentence."""
    at = [f"`0x{abi.PUSH_BASE + k * abi.PUSH_PAGE_BYTES:04X}` ({ring.name})" for k, ring in enumerate(abi.PUSH_RINGS)]
    return f"The pages at {' and '.join(at)}"


def registers_markdown() -> str:
    """Return the whole text, ending with a line feed."""
    registers = [(f"`0x{r.offset:04X}`", f"`{r.name}`", r.width, _ACCESS[r.access], _reset(r), r.doc)
                 for r in sorted(abi.REGISTERS, key=lambda r: r.offset)]
    counters = [(f"`0x{abi.COUNTER_BASE + 8 * i:04X}`", f"`{name}`", doc) for i, (name, doc) in enumerate(abi.COUNTERS)]
    reasons = [(reason.value, reason.name) for reason in abi.Reason]
    parts = [
        "# Registers and host-visible layouts",
        "Generated from `hdl/contract/abi.py` by `weft regs --output docs/registers.md`; do not edit. Everything is "
        "little-endian. BAR0 takes aligned accesses of 4 and 8 bytes.",
        f"## Registers of BAR0 ({abi.BAR_BYTES // 1024} KiB)",
        table(("offset", "register", "bits", "access", "reset", "meaning"), registers),
        f"The MSI-X table is at `0x{abi.MSIX_TABLE_OFFSET:04X}`, its pending bits at `0x{abi.MSIX_PBA_OFFSET:04X}`.",
        f"{_pages()} take descriptors: {abi.PUSH_WINDOWS} windows of {abi.BLOCK_BYTES} bytes each; an entry uses the "
        "window of its index modulo their number. One write of the whole entry acts as the doorbell of the ring for "
        "one more entry; a card that has read all entries before it takes the entry from the window. A write of a part "
        "acts as the doorbell alone; a repeated write of the newest entry has no effect. The entry is in the ring as "
        "well.",
        "## Counters",
        f"{abi.COUNTER_WIDTH} bits each, 8 bytes apart. Reading the low word latches the high one.",
        table(("offset", "counter", "counts"), counters),
        "## Reasons",
        "Why a packet, descriptor or command was refused.",
        table(("value", "name"), reasons),
    ]
    for title, layouts in _LAYOUTS:
        parts += [f"## {title}", *map(_layout, layouts)]
    return "\n\n".join(parts) + "\n"
