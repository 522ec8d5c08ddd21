"""Ports of the card for an integrator: order, width, purpose, and a template that connects them."""

from typing import NamedTuple

from amaranth.hdl import Shape
from amaranth.lib.wiring import Out

from ..card import card_signature
from .state_names import without_enums
from .text import CARD_MODULE

ABOUT = {
    "clk": "the card's clock, 250 MHz in all figures", "rst": "its reset, synchronous, active high",
    "mac_clk": "the MAC's clock, 322.265625 MHz", "mac_rst": "its reset, the same",
    "m_axis_rq": "requests to the PCIe hard block", "s_axis_rc": "completions from it",
    "s_axis_cq": "host accesses to BAR0", "m_axis_cc": "their completions",
    "cfg_max_payload": "largest TLP payload: 128 bytes << code", "cfg_max_read_req": "largest read request: the same",
    "pcie_rq_seq_num0": "sequence number of a write that has left the block: the card counts its writes with it",
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
    "mac_up": "the link is there: frames to the MAC are not dropped",
    "mac_tx_dropped": "strobe: a frame to the MAC was dropped, because of `mac_up` or a reset",
    "mac_tx_aborted": "strobe: a frame to the MAC was cut by a reset of the card",
    "mac_rx_dropped": "strobe: a frame from the MAC did not reach the card: no space, too long, or a reset",
}


class Port(NamedTuple):
    """Group of signals with one purpose: a stream, or one signal.

    Attributes
    ----------
    name : str
    output : bool
        The card drives it; of a stream, the card is its source.
    signals : list of (str, int, bool)
        Verilog name, bits, and True for an output.
    """

    name: str
    output: bool
    signals: list


def card_ports(text, params):
    """Return the :class:`Port` list of a card in Verilog, in the order of its signature.

    Raises
    ------
    ValueError
        If the Verilog has other ports.
    """
    there = {name.strip() for name in _list(text).partition("(")[2].split(",")}
    signature = card_signature(mac_clock=params.mac_clock)
    found = {} if params.mac_clock else {name: Port(name, False, [(name, 1, False)]) for name in ("clk", "rst")}
    for path, member, _ in signature.flatten(signature.create()):
        name, output = "__".join(path), member.flow == Out
        if name in there:
            port = found.setdefault(path[0], Port(path[0], output, []))
            port.signals.append((name, Shape.cast(member.shape).width, output))
    if there != {name for port in found.values() for name, _, _ in port.signals}:
        raise ValueError(f"the Verilog has ports that the card's signature lacks, or lacks some: {sorted(there)}")
    return list(found.values())


def _list(text):
    """Return the head of the card's module: from its name to the end of its list of ports."""
    start = text.index(f"module {CARD_MODULE}(")
    return text[start:text.index(");", start)]


def annotated(text, params, heading):
    """Return Verilog text of the card with a heading, without enums, and its ports in order, each with its purpose.

    Parameters
    ----------
    heading : list of str
        Comment lines: origin, version, licence.
    """
    ports = ",\n".join(f"  // {ABOUT[port.name]}\n  " + ", ".join(name for name, _, _ in port.signals)
                       for port in card_ports(text, params))
    return _comment(heading) + without_enums(text).replace(_list(text), f"module {CARD_MODULE}(\n{ports}\n", 1)


def instance_text(text, params, heading):
    """Return an instantiation template: every port of the card by name, with its direction and width."""
    lines = []
    for port in card_ports(text, params):
        lines.append(f"    // {ABOUT[port.name]}")
        lines += [f"    .{name}({name}),  // {'output' if output else 'input'}{f' [{bits - 1}:0]' * (bits > 1)}"
                  for name, bits, output in port.signals]
    lines[-1] = lines[-1].replace("),  //", ")   //")
    return "\n".join([f"{_comment(heading)}{CARD_MODULE} card (", *lines, ");", ""])


def _comment(lines):
    return "".join(f"// {line}\n" for line in lines)
