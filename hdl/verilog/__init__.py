"""Verilog of a component, and of the whole card.

``text`` writes it, and ``lean_netlist`` speeds Amaranth up; ``self_reading`` finds signals that
simulators read in different ways; ``state_names`` adds the names of state-machine states.
"""

from .text import CARD_MODULE, card_verilog, plain_assertions, rtlil_text, verilog_text

__all__ = ["CARD_MODULE", "card_verilog", "plain_assertions", "rtlil_text", "verilog_text"]
