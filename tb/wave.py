"""A GTKWave save file for the waves of two cards, and the viewer.

The save file opens on what happens at the first lost packet; states and codes are shown by name.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

from vcd.gtkw import GTKWColor, GTKWSave

from weft.hdl import abi, wire

from .pcap import read_pcap
from .two_cards import SIDES, TOP
from .wave_layout import CARD, OVERVIEW
from .wave_names import Design

ENUMS = {enum.__name__: enum for enum in (abi.Reason, abi.ReportKind, abi.Encoding, abi.QpState, abi.WorkOpcode,
                                          abi.CommandOpcode, abi.CommandStatus, wire.Opcode)}
HEXADECIMAL = {"address", "body", "bitmap", "data", "line", "next_line", "open", "tdata", "tkeep", "tuser"}
DECIMAL_BITS = 32
ALARMING = {reason.name for reason in abi.Reason if reason is not abi.Reason.OK} | {
    "REFUSED", "DUPLICATE", "STALE", "STALE_RSN", "QUEUE_FULL", "DISCARD", "ERR", "ERROR", "QP_ERROR", "TX_ERROR"}
OPCODE_AT = wire.ETH.size_bytes + wire.IPV4.size_bytes + wire.UDP.size_bytes
ORIGINALS = (wire.Opcode.WRITE_ONLY, wire.Opcode.WRITE_ONLY_IMM)
RETRANSMISSIONS = (wire.Opcode.RETX_WRITE, wire.Opcode.RETX_WRITE_IMM)
PS_PER_NS = 1000
LEAD_NS = 200
ZOOM = -18.3          # 2 ** 18.3 ps are 200 pixels: a clock cycle is 2.5 pixels wide
EVENT = ("valid", "_stb", "_en", "took", "hit")
_ITEM = re.compile(r"(?P<signal>[\w.*]*)(?:<(?P<layout>\w+)\.(?P<field>\w+)>)?(?::(?P<enum>\w+))?"
                   r"(?:=(?P<label>\w+))?(?P<stream>\{[^}]*\})?")


@dataclass
class Trace:
    """One line of the viewer: ``width`` bits of a signal from bit ``low`` on, named and read in a certain way."""

    path: str
    wire: object
    low: int
    width: int
    label: str
    values: dict
    values_name: str

    @property
    def datafmt(self):
        """Radix: names are looked up by their bits, counts are decimal, addresses and data are not."""
        if self.values:
            return "bin"
        count = 1 < self.width <= DECIMAL_BITS and self.label.split()[-1] not in HEXADECIMAL
        return "dec" if count else "hex"


    @property
    def color(self):
        """Names and events stand out."""
        if self.values:
            return GTKWColor.orange
        return GTKWColor.yellow if self.label.endswith(EVENT) else GTKWColor.normal


def traces(design, root, lines, *, ready=True):
    """Traces of the ``lines`` of a group (see :mod:`.wave_layout`) below instance ``root``, and what is not there.

    Without ``ready`` streams are shown without it.

    Returns
    -------
    tuple
        List of :class:`Trace`, list of ``"path.signal"``.
    """
    found, missing = [], []
    instances = {line.partition(": ")[0] for line in lines}
    for line in lines:
        instance, _, items = line.partition(": ")
        path = ".".join(part for part in (root, instance.strip(".")) if part)
        prefix = f"{instance.rpartition('.')[2]} " if len(instances) > 1 else ""
        for signal, layout, field, enum, label, optional in _signals(items, ready):
            wires = design.find(path, signal)
            if not wires and not optional and "*" not in signal:
                missing.append(f"{path}.{signal}")
            for known in wires:
                low, width, values, values_name = 0, known.width, known.values, f"{instance}.{known.name}"
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
    """The items of a line, streams taken apart: (signal, layout, field, enum, label, may be missing)."""
    for item in re.findall(r"\S+?\{[^}]*\}|\S+", items):
        parts = _ITEM.fullmatch(item)
        name = parts["signal"]
        if parts["stream"] is None:
            yield name, parts["layout"], parts["field"], parts["enum"], parts["label"], False
            continue
        yield f"{name}__valid", None, None, None, None, False
        if ready:
            yield f"{name}__ready", None, None, None, None, True      # a consumer that is always ready has none
        fields = parts["stream"][1:-1].split()
        for text in fields or [""]:
            field = _ITEM.fullmatch(text)
            dot = "." if field["signal"] else ""
            yield (f"{name}__payload{dot}{field['signal']}", field["layout"], field["field"], field["enum"],
                   field["label"], False)


class SaveFile:
    """Writes groups of traces.

    Parameters
    ----------
    file
        Open for writing; the files with names of values lie in the folder ``names``.
    waves : Path
    design : Design
    names : Path
    escaped : bool
        Names that are no Verilog identifiers have a backslash in the waves: so Icarus writes them.
    """

    def __init__(self, file, waves, *, design, names, escaped):
        self.design, self.names, self.escaped = design, names, escaped
        self.missing, self.paths = [], []
        names.mkdir(exist_ok=True)
        self.gtkw = GTKWSave(file)
        self.gtkw.dumpfile(str(waves))
        self.gtkw.size(1800, 1040)
        self.gtkw.signals_width(400)
        self.gtkw.sst_expanded(False)
        self.gtkw.treeopen(f"{design.top}.")

    def group(self, title, root, lines, *, closed=False, ready=True):
        """A group of the signals that ``lines`` name below instance ``root``."""
        found, missing = traces(self.design, root, lines, ready=ready)
        self.missing += missing
        if found:
            with self.gtkw.group(title, closed=closed):
                for trace in found:
                    self._trace(trace)

    def moments(self, moments):
        """Markers A, B, ... at these moments, ``{sentence: nanoseconds}``; the view begins before the second one."""
        times = [round(time * PS_PER_NS) for time in moments.values()]
        letters = "abc"[:len(times)]
        self.gtkw.zoom_markers(ZOOM, times[1], **dict(zip(letters, times, strict=True)))
        for letter, sentence in zip(letters, moments, strict=True):
            print(f"[markername] {letter.upper()}{sentence}", file=self.gtkw.file)
        self.gtkw.timestart(max(times[1] - LEAD_NS * PS_PER_NS, 0))

    def _trace(self, trace):
        name = self._full_name(trace)
        self.paths.append(name)
        filter_file = self._filter(trace) if trace.values else None
        look = {"datafmt": trace.datafmt, "translate_filter_file": filter_file, "color": trace.color}
        if trace.width == trace.wire.width:
            self.gtkw.trace(name, alias=trace.label, **look)
            return
        first = trace.wire.width - trace.low - trace.width     # the viewer counts from the most significant bit
        bits = " ".join(f"({first + bit}){name}" for bit in range(trace.width))
        self.gtkw.trace(f"#{{{trace.label}}} {bits}", **look)

    def _full_name(self, trace):
        escape = "\\" if self.escaped and not re.fullmatch(r"[A-Za-z_]\w*", trace.wire.name) else ""
        span = f"[{trace.wire.width - 1}:0]" if trace.wire.width > 1 else ""
        return ".".join(part for part in (self.design.top, trace.path) if part) + f".{escape}{trace.wire.name}{span}"

    def _filter(self, trace):
        """File that gives the values of a trace their names."""
        path = (self.names / f"{trace.values_name}.txt").absolute()
        lines = (f"{bits} {'?red?' if name in ALARMING else ''}{name}\n" for bits, name in trace.values.items())
        path.write_text("".join(lines))
        return str(path)


def write(run, captures=None):
    """Write the save file beside the waves of the run folder ``run``.

    Parameters
    ----------
    run : Path
    captures : Path, optional
        Captures of that run: the first lost packet is looked up there.

    Returns
    -------
    tuple of Path
        Waves and save file; None if there are no waves.
    """
    waves = next((path for path in (run / "waves.fst", run / "waves.vcd") if path.exists()), None)
    if waves is None:
        return None
    save = run / "waves.gtkw"
    design = Design((run.parent / f"{TOP}.v").read_text(), TOP)
    simulator = (run.parent / "ready").read_text().partition("\n")[0]
    with open(save, "w") as file:
        out = SaveFile(file, waves, design=design, names=run / "waves.names", escaped=simulator == "icarus")
        if moments := first_loss(captures) if captures else {}:
            out.moments(moments)
        out.gtkw.trace(f"{TOP}.clk")
        for title, side, lines in OVERVIEW:
            out.group(title, f"card_{side}", lines, ready=False)
        for side in SIDES:
            with out.gtkw.group(f"all of card {side.upper()}", closed=True):
                for title, lines in CARD:
                    out.group(f"{side.upper()} {title}", f"card_{side}", lines, closed=True)
    return waves, save


def first_loss(captures):
    """Moments around the first data packet that did not arrive, in a run's captures: ``{sentence: nanoseconds}``.

    When it was sent, when the next one arrived, and when the first retransmission did; empty if none was lost.
    """
    try:
        sent, arrived = (read_pcap(captures / f"a_to_b.{what}.pcap") for what in ("sent", "arrived"))
    except OSError:
        return {}
    left = Counter(frame for _, frame in arrived)
    moments = {}
    for time, frame in sent:
        if _opcode(frame) not in ORIGINALS:
            continue
        if left[frame]:
            left[frame] -= 1
            if moments:
                moments["next arrives"] = next(at for at, other in arrived if other == frame and at > time)
                break
        elif not moments:
            moments["lost"] = time
    else:
        return {}
    again = [at for at, frame in arrived if _opcode(frame) in RETRANSMISSIONS and at > moments["next arrives"]]
    return moments | ({"retransmission arrives": again[0]} if again else {})


def _opcode(frame):
    return frame[OPCODE_AT] if len(frame) > OPCODE_AT else None


def show(run, captures=None):
    """Write the save file of the run folder ``run`` and open GTKWave, or say how."""
    written = write(run, captures)
    if written is None:
        print(f"weft: there are no waves in {run}", file=sys.stderr)
        return
    viewer = shutil.which("gtkwave")
    if viewer and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([viewer, *map(str, written)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    else:
        why = "there is no display" if viewer else "GTKWave is not installed (Debian: apt-get install gtkwave)"
        print(f"weft: {why}; the command is: {command(*written)}")


def command(waves, save):
    """The command that opens the waves."""
    return shlex.join(["gtkwave", str(waves), str(save)])
