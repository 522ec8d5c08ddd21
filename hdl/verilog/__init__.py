"""Verilog of a component, and of the whole card.

``text`` writes it, ``lean_netlist`` speeds Amaranth up, and ``shared_values`` makes one cell of an expression;
``self_reading`` finds signals that simulators read in different ways; ``state_names`` adds the names of state-machine
states.
"""

from .text import CARD_MODULE, card_verilog, plain_assertions, rtlil_text, verilog_text

__all__ = ["CARD_MODULE", "card_verilog", "plain_assertions", "rtlil_text", "verilog_text"]
