"""Mermaid diagrams: imports between folders, states of a QP, and the state machines of blocks."""

import inspect
import re

from weft.driver.terms.enums import QPState
from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.qp_states import TRANSITIONS, check_transition, necessary
from weft.hdl.verilog import rtlil_text
from weft.tb.verify.structure.layers import ROOT, edges, reachable

STATES = [state for state in QPState if state not in (QPState.SQE, QPState.UNKNOWN)]
_MODULE = re.compile(r"^module \\block$(.*?)^end$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r'^  attribute \\enum_value_([01]+) "(\w+)"$|^  wire .*\\(\S+)$', re.MULTILINE)
_STATE = re.compile(r'^\s*with m\.State\("(\w+)"\):(?:\s*#\s*(.*))?(?:\n\s*#\s*(.*))?$', re.MULTILINE)


def arrows(top, root=ROOT):
    """Return ``{(folder, imported folder)}`` among the folders of ``top``; deeper folders count as part of these."""
    found = {tuple(folder.split("/")[1] for folder in ends) for ends in edges(root)
             if all(folder.startswith(f"{top}/") for folder in ends)}
    return {(a, b) for a, b in found if a != b}


def without_detours(found):
    """Return the arrows that do not follow from others (transitive reduction)."""
    return {(a, b) for a, b in found
            if not any(b in reachable(found, c) for begin, c in found if begin == a and c != b)}


def flowchart(top, root=ROOT):
    """Return Mermaid text of the folders of ``top``, with an arrow from each folder to each folder that it requires."""
    lines = ["```mermaid", "flowchart TB", *(f"  {a} --> {b}" for a, b in sorted(without_detours(arrows(top, root))))]
    return "\n".join([*lines, "```"])


def _allowed(start, goal):
    try:
        check_transition(start, goal, necessary(start, goal) if (start, goal) in TRANSITIONS else 0)
    except InvalidValue:
        return False
    return True


def qp_states():
    """Return a Mermaid state diagram, and a sentence with the states that every state but RESET may enter."""
    found = [(start, goal) for start in STATES for goal in QPState if goal is not start and _allowed(start, goal)]
    others = set(STATES) - {QPState.RESET}
    anywhere = [goal for goal in QPState if {start for start, end in found if end is goal} >= others - {goal}]
    lines = ["```mermaid", "stateDiagram-v2", "  [*] --> RESET"]
    lines += [f"  {start.name} --> {goal.name}" for start, goal in found if goal not in anywhere]
    lines += [f"  {start.name} --> {goal.name}" for start, goal in found
              if goal in anywhere and start in (QPState.RTS, QPState.SQD, QPState.ERR)]
    directions = " and to ".join(f"`{goal.name}`" for goal in anywhere)
    lines += ["```", "", f"From every state but `RESET` `modify` also leads to {directions}."]
    return "\n".join(lines)


def transitions(component):
    """Return the state machine of a component, from the netlist: ``[(state, next state), ...]``, reset state first.

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
