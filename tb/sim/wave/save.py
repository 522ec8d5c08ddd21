"""Writer of a GTKWave save file: groups of signals, with names for the values of enums."""

import math
import re
from dataclasses import dataclass

from vcd.gtkw import GTKWColor, GTKWSave

from weft.hdl.contract import abi, wire

ENUMS = {enum.__name__: enum for enum in (abi.Reason, abi.ReportKind, abi.Encoding, abi.QpState, abi.WorkOpcode,
                                          abi.CommandOpcode, abi.CommandStatus, wire.Opcode)}
HEXADECIMAL = {"address", "body", "bitmap", "data", "line", "next_line", "open", "tdata", "tkeep", "tuser"}
DECIMAL_BITS = 32
ALARMING = {"REFUSED", "DUPLICATE", "STALE", "DISCARD", "ERR", "ERROR", "QP_ERROR", "TX_ERROR"}     # names in red
PS_PER_NS = 1000
WINDOW = 1800, 1040
NAMES_PIXELS = 400
WAVE_PIXELS = 1200    # of the window, besides names and values
ZOOM_PIXELS = 200     # pixels per 2 ** -zoom ps
SHORTEST_PS = 500_000
MARGIN = 0.05         # fraction of the time between the first and the last marker, on either side
EVENT = ("valid", "_stb", "_en", "took", "hit")
_ITEM = re.compile(r"(?P<signal>[\w.*]*)(?:<(?P<layout>\w+)\.(?P<field>\w+)>)?(?::(?P<enum>\w+))?"
                   r"(?:=(?P<label>\w+))?(?P<stream>\{[^}]*\})?")


@dataclass
class Trace:
    """Line of the viewer: ``width`` bits of a signal from bit ``low`` on, with label and names of values."""

    path: str
    wire: object
    low: int
    width: int
    label: str
    values: dict
    values_name: str

    @property
    def datafmt(self):
        """Return the radix: binary for named values, decimal for counts, hexadecimal for addresses and data."""
        if self.values:
            return "bin"
        count = 1 < self.width <= DECIMAL_BITS and self.label.split()[-1] not in HEXADECIMAL
        return "dec" if count else "hex"

    @property
    def color(self):
        """Return the color, which highlights named values and events."""
        if self.values:
            return GTKWColor.orange
        return GTKWColor.yellow if self.label.endswith(EVENT) else GTKWColor.normal


def traces(design, root, lines, *, ready=True):
    """Return the traces of the ``lines`` of a group (see :mod:`~weft.tb.sim.wave.layout`) below instance ``root``.

    Also return the missing signals, ``"instance: signal"``. Without ``ready``, streams are shown without that signal.
    """
    found, missing = [], []
    instances = {line.partition(": ")[0] for line in lines}
    for line in lines:
        instance, _, items = line.partition(": ")
        path = design.instance(root, instance.strip("."))
        last = re.split(r"[.*]", instance)[-1]
        prefix = f"{last} " if len(instances) > 1 else ""
        for signal, layout, field, enum, label, optional in _signals(items, ready):
            wires = [] if path is None else design.find(path, signal)
            if not wires and not optional and "*" not in signal:
                missing.append(f"{instance}: {signal}")
            for known in wires:
                low, width, values, values_name = 0, known.width, known.values, f"{last}.{known.name}"
                name = label or re.sub(r"__payload|__|[.]", " ", known.name)      # the viewer cuts names at dots
                if layout:
                    contract = getattr(abi, layout)
                    part = contract.by_name[field]
                    low, width = contract.shift_of(field), part.width
                    enum = enum or (part.enum and part.enum.__name__)
                    name = label or f"{name} {field}"
                if enum:
                    values, values_name = {f"{member.value:0{width}b}": member.name for member in ENUMS[enum]}, enum
                name = prefix + " ".join(name.split())
                found.append(Trace(path, known, low, width, name, values, f"{values_name}-{width}"))
    return found, missing


def _signals(items, ready):
    """Yield the items of a line, with streams split: (signal, layout, field, enum, label, may be missing)."""
    for item in re.findall(r"\S+?\{[^}]*\}|\S+", items):
        parts = _ITEM.fullmatch(item)
        name = parts["signal"]
        if parts["stream"] is None:
            yield name, parts["layout"], parts["field"], parts["enum"], parts["label"], False
            continue
        yield f"{name}__valid", None, None, None, None, False
        if ready:
            yield f"{name}__ready", None, None, None, None, True      # absent if the consumer is always ready
        fields = parts["stream"][1:-1].split()
        for text in fields or [""]:
            field = _ITEM.fullmatch(text)
            dot = "." if field["signal"] else ""
            yield (f"{name}__payload{dot}{field['signal']}", field["layout"], field["field"], field["enum"],
                   field["label"], False)


class SaveFile:
    """Save file with groups of traces, written to the open ``file``.

    The files with names of values are in the folder ``names``. If ``escaped``, names that are not Verilog identifiers
    begin with a backslash in the waves, as Icarus writes them.
    """

    def __init__(self, file, waves, *, design, names, escaped):
        self.design, self.names, self.escaped = design, names, escaped
        self.missing, self.paths = [], []
        names.mkdir(exist_ok=True)
        self.gtkw = GTKWSave(file)
        self.gtkw.dumpfile(str(waves))
        self.gtkw.size(*WINDOW)
        self.gtkw.signals_width(NAMES_PIXELS)
        self.gtkw.sst_expanded(False)
        self.gtkw.treeopen(f"{design.top}.")

    def group(self, title, root, lines, *, closed=False, ready=True):
        """Write a group of the signals that ``lines`` name below instance ``root``."""
        found, missing = traces(self.design, root, lines, ready=ready)
        self.missing += missing
        if found:
            with self.gtkw.group(title, closed=closed):
                for trace in found:
                    self._trace(trace)

    def moments(self, moments):
        """Set markers A, B, ... at these :class:`~weft.tb.sim.wave.view.Moment`, and zoom so that all are visible.

        They are in order of time.
        """
        times = [round(moment.time_ns * PS_PER_NS) for moment in moments]
        letters = "abc"[:len(times)]
        span = max(times[-1] - times[0], SHORTEST_PS)
        self.gtkw.zoom_markers(-math.log2(span * (1 + 2 * MARGIN) * ZOOM_PIXELS / WAVE_PIXELS), times[0],
                               **dict(zip(letters, times, strict=True)))
        for letter, moment in zip(letters, moments, strict=True):
            print(f"[markername] {letter.upper()}{moment.sentence}", file=self.gtkw.file)
        self.gtkw.timestart(max(round(times[0] - MARGIN * span), 0))

    def _trace(self, trace):
        name = self._full_name(trace)
        self.paths.append(name)
        filter_file = self._filter(trace) if trace.values else None
        look = {"datafmt": trace.datafmt, "translate_filter_file": filter_file, "color": trace.color}
        if trace.width == trace.wire.width:
            self.gtkw.trace(name, alias=trace.label, **look)
            return
        first = trace.wire.width - trace.low - trace.width     # the viewer counts bits from the most significant one
        bits = " ".join(f"({first + bit}){name}" for bit in range(trace.width))
        self.gtkw.trace(f"#{{{trace.label}}} {bits}", **look)

    def _full_name(self, trace):
        escape = "\\" if self.escaped and not re.fullmatch(r"[A-Za-z_]\w*", trace.wire.name) else ""
        span = f"[{trace.wire.width - 1}:0]" if trace.wire.width > 1 else ""
        return ".".join(part for part in (self.design.top, trace.path) if part) + f".{escape}{trace.wire.name}{span}"

    def _filter(self, trace):
        """Write the file that maps the values of a trace to their names; return its path."""
        path = (self.names / f"{trace.values_name}.txt").absolute()
        # A reason keeps its value while nothing is valid, so red would mark times without a drop.
        alarming = () if trace.values_name.startswith("Reason-") else ALARMING
        lines = (f"{bits} {'?red?' if name in alarming else ''}{name}\n" for bits, name in trace.values.items())
        path.write_text("".join(lines))
        return str(path)
