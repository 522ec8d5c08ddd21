"""The ports of the card as whoever builds a board sees them, from its signature."""

from amaranth.lib.wiring import Out

from weft.hdl.card import Card
from weft.hdl.params import preset
from weft.tb.document.rooms import shallow
from weft.tb.document.sizing import table

ABOUT = {
    "m_axis_rq": "requests to the PCIe hard block", "s_axis_rc": "completions from it",
    "s_axis_cq": "host accesses to BAR0", "m_axis_cc": "their completions",
    "cfg_max_payload": "largest TLP payload: 128 bytes << code", "cfg_max_read_req": "largest read request: the same",
    "m_axis_tx": "frames to the MAC, without FCS; no gap inside a frame",
    "s_axis_rx": "frames from the MAC, without FCS; the card is always ready",
}


def port_table():
    """One row per stream or signal: direction, widths, what for."""
    found = {}
    card = Card(preset("test"))
    shallow(card)
    for path, member, _ in card.signature.flatten(card):
        found.setdefault(path[0], []).append((path[1:], member))
    rows = [("`clk`, `rst`", "in", "1, 1", "the only clock, 250 MHz in all figures; synchronous reset, active high")]
    for name, members in found.items():
        widths = ", ".join(f"`{path[0]}` {member.shape}" if path else f"{member.shape}" for path, member in members)
        source = members[0][1].flow == Out
        rows.append((f"`{name}`", "out" if source else "in", widths, ABOUT[name]))
    return table(("port", "", "bits", "what for"), rows)
