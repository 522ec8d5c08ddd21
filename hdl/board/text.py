"""Verilog of components with several clocks."""

from ..verilog import verilog_text


def clocks_text(component, name):
    """Verilog of a component in which clocks and resets are signals as others; see :mod:`weft.hdl.verilog`.

    :func:`weft.hdl.verilog.rtlil_text` cannot name the states of such a design before its clocks are wired.
    """
    from amaranth.back import rtlil
    from amaranth.hdl import Fragment, Signal, Value

    members = [Value.cast(value) for _, _, value in component.signature.flatten(component)]
    return verilog_text(rtlil.convert(Fragment.get(component, None), name=name, emit_src=False,
                                      ports=[value for value in members if isinstance(value, Signal)]))
