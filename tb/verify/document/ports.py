"""The ports of the card as whoever builds a board sees them, from its signature."""

from amaranth.lib.wiring import Out

from weft.hdl.card import Card
from weft.hdl.contract.params import preset
from weft.tb.app.device.registers import table
from weft.tb.verify.document.rooms import shallow

ABOUT = {
    "m_axis_rq": "requests to the PCIe hard block", "s_axis_rc": "completions from it",
    "s_axis_cq": "host accesses to BAR0", "m_axis_cc": "their completions",
    "cfg_max_payload": "largest TLP payload: 128 bytes << code", "cfg_max_read_req": "largest read request: the same",
    "pcie_rq_seq_num0": "sequence numbers of requests that have left: a register read waits for no write any more",
    "pcie_rq_seq_num1": "the same",
    "pcie_rq_seq_num_vld0": "the first is valid", "pcie_rq_seq_num_vld1": "the second is",
    "pcie_tfc_nph_av": "headers of reads that the link partner takes: with none, reads wait and let writes pass",
    "cfg_function_status": "bit 2: bus-master enable; without it every read fails and every write vanishes",
    "cfg_ext_tag_enable": "extended-tag enable, bit 8 of Device Control; without it 32 reads at a time. The block has "
                          "no such port: read the register through `cfg_mgmt`",
    "cfg_interrupt_msix_enable": "bit 0: MSI-X Enable", "cfg_interrupt_msix_mask": "bit 0: MSI-X Function Mask",
    "cfg_flr_in_process": "bit 0: the host resets the function", "cfg_flr_done": "bit 0: the card is reset",
    "m_axis_tx": "frames to the MAC, without FCS; no gap inside a frame",
    "s_axis_rx": "frames from the MAC, without FCS; the card is always ready",
    "clk": "the card's clock, 250 MHz in all figures", "rst": "its reset, active high, at any moment and for any time",
    "mac_clk": "the MAC's clock, 322.265625 MHz", "mac_rst": "its reset, the same",
    "mac_up": "the link is there: frames to the MAC are not dropped",
    "mac_tx_dropped": "strobe: a frame to the MAC was dropped, because of `mac_up` or a reset",
    "mac_tx_aborted": "strobe: a frame to the MAC was cut by a reset of the card",
    "mac_rx_dropped": "strobe: a frame from the MAC did not reach the card: no room, too long, or a reset",
}


def _members(card):
    """``{port or stream: its members}`` of a card."""
    found = {}
    shallow(card)
    for path, member, _ in card.signature.flatten(card):
        found.setdefault(path[0], []).append((path[1:], member))
    return found


def port_table():
    """One row per stream or signal: direction, widths, what for."""
    return _table(_members(Card(preset("test"))), [
        ("`clk`, `rst`", "in", "1, 1", "the only clock, 250 MHz in all figures; synchronous reset, active high")])


def mac_clock_table():
    """The same of what a card with ``CardParams.mac_clock`` has besides."""
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
