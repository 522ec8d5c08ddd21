"""Blocks of a subsystem and the connections between them, as a Mermaid flowchart drawn from the subsystem's wiring."""

from collections import defaultdict

from amaranth.hdl import Fragment, Module, Shape, Value
from amaranth.hdl._ast import SignalDict
from amaranth.lib.wiring import In, Out

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.adamap.second_level import SecondLevel
from weft.hdl.card import Card
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import BEAT_BITS

STREAM_ENDS = ("payload", "tdata")


def shallow(component):
    """Elaborate a component without its blocks; return its fragment, and ``{name: component}`` of the blocks."""
    whole, blocks = component.elaborate, {}

    def without_blocks(platform):
        module = whole(platform)
        blocks.update(blocks_of(module))
        for block in blocks.values():
            block.elaborate = lambda platform: Module()
        return module

    component.elaborate = without_blocks
    return Fragment.get(component, None), blocks


def blocks_of(module):
    """Return ``{name: component}`` of the sub-blocks of an elaborated module, without resets and other wrappers."""
    found = {}
    for name, (block, _) in module._named_submodules.items():   # a Module has no public access to these names
        while hasattr(block, "_elaboratable_"):
            block = block._elaboratable_
        if hasattr(block, "signature"):
            found[name] = block
    return found


def _label(path, value):
    """Return the label of a stream: the name of its payload; for a plain number, the name of the port."""
    shape = value.shape()
    if isinstance(shape, type):
        return shape.__name__
    if Shape.cast(shape).width == BEAT_BITS:
        return "ring entry"
    return str(path[0]).removeprefix("o_").removeprefix("i_")


class _Ports:
    """Ports to which signals belong.

    A port is a tuple: block, label of a stream or name of an interface, whether it is a stream, whether the block is
    the requester of the interface.
    """

    def __init__(self):
        self._of = SignalDict()

    def add(self, place, component, outside=None):
        for path, _, value in component.signature.flatten(component):
            name = str(path[0])
            label = None
            if outside is not None:
                place, label = next(owner for start, owner in outside.items() if name.startswith(start))
            if path[-1] in STREAM_ENDS:
                port = (place, label or _label(path, value), True, label is not None)
            elif len(path) > 1 and path[-1] not in ("valid", "ready") and label is None:
                asks = component.signature.members[name].flow == (Out if outside is None else In)
                port = (place, name, False, asks)
            else:
                continue
            for signal in Value.cast(value)._rhs_signals():
                self._of[signal] = port

    def of(self, signals):
        return [self._of[signal] for signal in signals if signal in self._of]


def edges(component, outside):
    """Return the blocks of a subsystem, and the streams and interfaces between them.

    ``outside`` has (neighbor, label or None) of the ports of the component itself, by the start of a port's name. The
    results are the names of the blocks; the labels of the streams from one block to another, by (from, to); and the
    names of the interfaces with signals in both directions, by (requester, responder).
    """
    fragment, blocks = shallow(component)
    ports = _Ports()
    for name, block in blocks.items():
        ports.add(name, block)
    ports.add(None, component, outside)
    streams, directions = defaultdict(set), defaultdict(set)
    for statement in fragment.statements["comb"]:
        for to, to_name, to_stream, to_asks in ports.of(statement._lhs_signals()):
            for place, name, is_stream, asks in ports.of(statement._rhs_signals()):
                if place == to or is_stream != to_stream:
                    continue
                if is_stream:
                    streams[place, to].add(to_name if to_asks else name)
                else:
                    ends = [(place, name), (to, to_name)]
                    directions[tuple(ends if asks else ends[::-1])].add(place)
    interfaces = defaultdict(set)
    for ((asks, name), (answers, _)), places in directions.items():
        if len(places) == 2:
            interfaces[asks, answers].add(name)
    return list(blocks), dict(sorted(streams.items())), dict(sorted(interfaces.items()))


def flowchart(component, outside, direction="LR"):
    """Return Mermaid text of a subsystem: an arrow for streams, a dotted line for a request-response interface."""
    blocks, streams, interfaces = edges(component, outside)
    drawn = {name for pair in (*streams, *interfaces) for name in pair}
    order = ["host", *blocks, *sorted(drawn - {"host", *blocks})]
    lines = ["```mermaid", f"flowchart {direction}"]
    lines += [f"  {name}" if name in blocks else f"  {name}(({name.replace('_', ' ')}))"
              for name in order if name in drawn]
    for (a, b), labels in streams.items():
        words, back = ", ".join(sorted(labels)), streams.get((b, a))
        if back is None:
            lines.append(f"  {a} -->|{words}| {b}")
        elif order.index(a) < order.index(b):
            answer = ", ".join(sorted(back))
            lines.append(f"  {a} <-->|{words if words == answer else f'{words} / {answer}'}| {b}")
    lines += [f"  {a} -.-|{', '.join(sorted(names))}| {b}" for (a, b), names in interfaces.items()]
    return "\n".join([*lines, "```"])


def card():
    """Return the flowchart of the subsystems of the card."""
    return flowchart(Card(preset("test")), {
        "m_axis_tx": ("link", "frames"), "s_axis_rx": ("link", "frames"), "": ("host", "TLPs")}, "TB")


def adamap():
    """Return the flowchart of the blocks of the Adamap subsystem."""
    return flowchart(Adamap(preset("test")), {
        "i_check": ("receive", None), "o_verdict": ("receive", None), "o_report": ("reporter", None),
        "o_line": ("host_memory", None), "i_line": ("host_memory", None), "qp": ("tables", None),
        "": ("command", None)})


def second_level():
    """Return the flowchart of the second level, the matching part of the Adamap subsystem."""
    return flowchart(SecondLevel(preset("test")), {
        "i_matcher": ("control", None), "i_prefetch": ("control", None), "o_report": ("reporter", None),
        "o_line": ("host_memory", None), "i_line": ("host_memory", None), "qp": ("tables", None),
        "i_extent": ("command", None), "o_qp_error": ("command", None), "": ("window", None)})
