"""State machines of blocks, as Mermaid diagrams drawn from the netlist, with a comment per state from the source.

The transitions come from the netlist. Transitions from a state to itself are not drawn.
"""

import inspect
import re

from weft.hdl.verilog import rtlil_text

_MODULE = re.compile(r"^module \\block$(.*?)^end$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r'^  attribute \\enum_value_([01]+) "(\w+)"$|^  wire .*\\(\S+)$', re.MULTILINE)
_STATE = re.compile(r'^\s*with m\.State\("(\w+)"\):(?:\s*#\s*(.*))?(?:\n\s*#\s*(.*))?$', re.MULTILINE)


def transitions(component):
    """Return the state machine of a component: ``[(state, next state), ...]``, reset state first.

    The component itself, without its blocks, must have exactly one state machine; otherwise ValueError is raised.
    """
    text = _MODULE.search(rtlil_text(component, "block"))[1]
    names, machines = {}, {}
    for bits, value, wire in _NAMED.findall(text):
        if wire:
            machines |= {wire: names} if names else {}
            names = {}
        else:
            names[bits] = value
    machines = {wire: names for wire, names in machines.items() if wire.startswith("fsm_state")}
    if len(machines) != 1:
        raise ValueError(f"{type(component).__name__} has {len(machines)} state machines, not one")
    (wire, names), = machines.items()
    start = re.search(rf"^    assign (\$\d+) \[\d+:0\] \\{wire} \[\d+:0\]$", text, re.MULTILINE)
    found, stack = {}, []
    for line in text[start.end():].splitlines()[1:]:
        word, _, rest = line.strip().partition(" ")
        if word == "switch":
            stack.append([f"\\{wire} " in rest + " ", None])
        elif word == "case":
            stack[-1][1] = rest.partition("'")[2]
        elif word == "assign" and rest.startswith(start[1]):
            here = next((case for of_state, case in stack if of_state), None)
            if here is not None:
                found[names[here], names[rest.rpartition("'")[2]]] = None
        elif word == "end":
            if not stack:
                break
            stack.pop()
    return [(a, b) for a, b in found if a != b]


def sentences(component):
    """Return ``{state: comment after its name}``, in the order of the source of the component's class."""
    return {state: (behind or below).strip().rstrip(".")
            for state, behind, below in _STATE.findall(inspect.getsource(type(component)))}


def diagram(component):
    """Return a Mermaid state diagram, and a table of the states that have a comment."""
    reported, arrows = sentences(component), transitions(component)
    if unknown := {state for pair in arrows for state in pair} - set(reported):
        raise ValueError(f"{type(component).__name__}: no source for the states {', '.join(sorted(unknown))}")
    first = next(iter(reported))
    lines = ["```mermaid", "stateDiagram-v2", f"  [*] --> {first}", *(f"  {a} --> {b}" for a, b in arrows), "```", "",
             "| state | |", "|---|---|", *(f"| `{state}` | {text} |" for state, text in reported.items() if text)]
    return "\n".join(lines)
