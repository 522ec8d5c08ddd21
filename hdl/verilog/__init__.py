"""Verilog of a component, and of the whole card.

``text`` writes it, and ``lean_netlist`` has Amaranth do so in less time; ``self_reading`` finds signals that
simulators would read in different ways; ``state_names`` keeps the names of state-machine states.
"""

from .text import CARD_MODULE, card_verilog, plain_assertions, rtlil_text, verilog_text

__all__ = ["CARD_MODULE", "card_verilog", "plain_assertions", "rtlil_text", "verilog_text"]
