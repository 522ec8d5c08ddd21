"""Table of the card's ports for board designers, from the card's signature."""

from amaranth.lib.wiring import Out

from weft.hdl.card import Card
from weft.hdl.contract.params import preset
from weft.hdl.verilog.ports import ABOUT
from weft.tb.app.device.registers import table
from weft.tb.verify.document.subsystems import shallow


def _members(card):
    """Return ``{port or stream: its members}`` of a card."""
    found = {}
    shallow(card)
    for path, member, _ in card.signature.flatten(card):
        found.setdefault(path[0], []).append((path[1:], member))
    return found


def port_table():
    """Return a table with one row per stream or signal: direction, widths, purpose."""
    return _table(_members(Card(preset("test"))), [
        ("`clk`, `rst`", "in", "1, 1", "the only clock, 250 MHz in all figures; synchronous reset, active high")])


def mac_clock_table():
    """Return the same table of the additional ports of a card with ``CardParams.mac_clock``."""
    card = preset("test")
    known, found = (_members(Card(card.with_(mac_clock=mac_clock))) for mac_clock in (False, True))
    return _table({name: members for name, members in found.items() if name not in known})


def _table(found, rows=()):
    rows = [*rows]
    for name, members in found.items():
        widths = ", ".join(f"`{path[0]}` {member.shape}" if path else f"{member.shape}" for path, member in members)
        source = members[0][1].flow == Out
        rows.append((f"`{name}`", "out" if source else "in", widths, ABOUT[name]))
    return table(("port", "", "bits", "what for"), rows)
