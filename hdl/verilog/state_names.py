"""Names of state-machine states for readers of the Verilog or its waves."""

import re

_ENUM = re.compile(r"^ *\(\* enum_(?:base_type|value_[01]+) = \"[^\"]*\" \*\)\n", re.MULTILINE)


def without_enums(text):
    """Return Verilog text without the names of enum values and states, which vendor tools do not read."""
    return _ENUM.sub("", text)


def name_states(fragment):
    """Attach to each state register of an elaborated design the names of its states.

    Amaranth knows them when it elaborates ``m.FSM()`` and does not write them. They become the attributes that it
    writes for an enum: ``enum_value_<bits>``.
    """
    for statements in fragment.statements.values():
        for signal in statements._rhs_signals():
            if signal.decoder is not None and "enum_base_type" not in signal.attrs:
                signal.attrs["enum_base_type"] = signal.name
                signal.attrs.update(_states(signal))
    for subfragment, *_ in fragment.subfragments:
        name_states(subfragment)


def _states(signal):
    """Return attribute and name of every value that the decoder of a signal knows."""
    width = len(signal)
    names = {}
    for value in range(1 << width):
        try:
            names[f"enum_value_{value:0{width}b}"] = signal.decoder(value).partition("/")[0]
        except KeyError:
            continue
    return names
