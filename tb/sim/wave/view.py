"""GTKWave save file for the waves of two cards, and start of the viewer.

The save file opens at the first lost packet; states and codes are shown by name.
"""

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field, replace

from weft.hdl.contract import wire
from weft.tb.sim.flow.verilog_text import by_number
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.sim.pair.two_cards import SIDES, TOP, clock_ports, inside
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.sim.wave.layout import CARD, OVERVIEW
from weft.tb.sim.wave.save import SaveFile

ORIGINALS = wire.DATA_OPCODES - wire.RETX_OPCODES
PS_PER_NS = 1000
HEADER_WITHIN_NS = 10_000    # thirty times the time of a frame of 4 KiB through MAC and parser
JUDGE = "receive.window_check"      # block that shows a header after the parser
_NAME = r"\\\S+|[\w$]+"
_MODULE = re.compile(rf"^module ({_NAME})\s*\(.*?^endmodule", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(rf"^  ({_NAME})\s+({_NAME})\s*\($", re.MULTILINE)
_DECLARATION = re.compile(
    r"""^\ \ \(\*\ enum_value_(?P<bits>[01]+)\ =\ "(?P<value>[^"]*)"\ \*\)$
      | ^\ \ (?:wire|reg|input|output)\ (?:signed\ )?(?:\[(?P<high>\d+):0\]\ ?)?
        (?P<name>\\\S+|[\w$]+)\s*(?:=[^;\n]*)?;?$""",
    re.MULTILINE | re.VERBOSE)


@dataclass(frozen=True)
class Moment:
    """Moment in the waves: a sentence, its time, and the packet that it is about."""

    sentence: str
    time_ns: float
    opcode: int
    psn: int


def first_loss(captures):
    """Return the moments around the first lost data packet, at the times of a run's captures.

    They are the transmission of the lost packet, the arrival of the next one, and the arrival of the first
    retransmission. The list is empty if no packet was lost.
    """
    try:
        sent, arrived = (read_pcap(captures / f"a_to_b.{subject}.pcap") for subject in ("sent", "arrived"))
    except OSError:
        return []
    left, moments = Counter(frame for _, frame in arrived), []
    for time, frame in sent:
        if _header(frame)[0] not in ORIGINALS:
            continue
        if left[frame]:
            left[frame] -= 1
            if moments:
                at = next(at for at, other in arrived if other == frame and at > time)
                moments.append(Moment("next arrives", at, *_header(frame)))
                break
        elif not moments:
            moments.append(Moment("lost", time, *_header(frame)))
    else:
        return []
    for at, frame in arrived:
        if _header(frame)[0] in wire.RETX_OPCODES and at > moments[-1].time_ns:
            return [*moments, Moment("retransmission arrives", at, *_header(frame))]
    return moments


def _header(frame):
    """Return opcode and PSN of a RoCEv2 frame; None and None for another frame."""
    if len(frame) < wire.RETH_OFFSET:
        return None, None
    header = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    return header.opcode, header.psn


def shown(moments, waves, root):
    """Return the moments, with those of arrivals moved to the time when the packet's header appears in card B.

    The captures hold the time of a frame's arrival at the MAC; the card reads its header later, after those of earlier
    frames. ``root`` is the instance of card B in the file ``waves``.
    """
    import pywellen

    wanted = {f"{root}.{JUDGE}.{signal}": signal.rpartition("__")[2].rpartition(".")[2]
              for signal in ("i__valid", "i__payload.header.opcode", "i__payload.header.psn")}
    found = {}
    for var in pywellen.Waveform(str(waves)).all_vars():
        name = re.sub(r"\s*\[\d+:\d+\]$", "", var.full_name).replace("\\", "")
        if name in wanted:
            found[wanted[name]] = var.signal
    if len(found) < len(wanted):
        return moments

    def taken(moment):
        if moment.sentence == "lost":
            return moment
        for time in range(round(moment.time_ns), round(moment.time_ns) + HEADER_WITHIN_NS, CLOCK_PERIOD_NS):
            value = {name: signal.value_at(time * PS_PER_NS) for name, signal in found.items()}
            if value == {"valid": 1, "opcode": moment.opcode, "psn": moment.psn}:
                return replace(moment, time_ns=time)
        return moment
    return [taken(moment) for moment in moments]


@dataclass
class Wire:
    """Signal: its width, and the names of its values, keyed by their bits."""

    name: str
    width: int
    values: dict = field(default_factory=dict)


class Design:
    """Hierarchy of a Verilog text with top module ``top``, parsed on demand."""

    def __init__(self, text, top):
        self.top = top
        self._bodies = {_plain(found[1]): found[0] for found in _MODULE.finditer(text)}
        self._instances, self._wires = {}, {}

    def module_at(self, path):
        """Return the module of the instance at the dotted ``path``, or None; the empty path is the top module."""
        module = self.top
        for part in filter(None, path.split(".")):
            module = self._children(module).get(part)
            if module is None:
                return None
        return module

    def instance(self, root, pattern):
        """Return the path of the highest instance below ``root`` that matches a shell pattern, or None."""
        if "*" not in pattern:
            path = ".".join(part for part in (root, pattern) if part)
            return path if self.module_at(path) else None
        level = [(path, module) for path, module in [(root, self.module_at(root))] if module]
        while level:
            level = [(f"{path}.{name}" if path else name, kind)
                     for path, module in level for name, kind in self._children(module).items()]
            for path, _ in level:
                if fnmatch.fnmatchcase(path.removeprefix(f"{root}."), pattern):
                    return path
        return None

    def wires(self, path):
        """Return the signals of the instance at ``path``: ``{name: Wire}``; empty if there is no such instance."""
        module = self.module_at(path)
        if module is None:
            return {}
        if module not in self._wires:
            self._wires[module] = self._parse(self._bodies[module])
        return self._wires[module]

    def find(self, path, pattern):
        """Return the signals of an instance whose names match a shell pattern, in the order of their numbers."""
        wires = self.wires(path)
        if "*" not in pattern:
            return [wires[pattern]] if pattern in wires else []
        found = (wire for name, wire in wires.items() if fnmatch.fnmatchcase(name, pattern) and "$" not in name)
        return sorted(found, key=lambda wire: by_number(wire.name))

    def _children(self, module):
        if module not in self._instances:
            self._instances[module] = {_plain(name): _plain(kind) for kind, name in
                                       _INSTANCE.findall(self._bodies[module]) if _plain(kind) in self._bodies}
        return self._instances[module]

    @staticmethod
    def _parse(body):
        wires, values = {}, {}
        for found in _DECLARATION.finditer(body):
            if found["bits"]:
                values[found["bits"]] = found["value"]
                continue
            name = _plain(found["name"])
            known = wires.setdefault(name, Wire(name, int(found["high"] or 0) + 1))
            known.values.update(values)
            values = {}
        return wires


def _plain(name):
    return name.removeprefix("\\")


def write(run, captures=None):
    """Write the save file beside the waves of the run folder ``run``.

    The first lost packet is found in the folder ``captures`` of that run. Return the paths of waves and save file; None
    if there are no waves.
    """
    waves = next((path for path in (run / "waves.fst", run / "waves.vcd") if path.exists()), None)
    if waves is None:
        return None
    save = run / "waves.gtkw"
    text = (run.parent / f"{TOP}.v").read_text()
    design = Design(text, TOP)
    simulator = (run.parent / "ready").read_text().partition("\n")[0]
    with open(save, "w", encoding="utf-8", errors="surrogateescape") as file:
        out = SaveFile(file, waves, design=design, names=run / "waves.names", escaped=simulator == "icarus")
        if moments := first_loss(captures) if captures else []:
            out.moments(shown(moments, waves, f"{TOP}.{inside('b')}"))
        for clock in clock_ports(text):
            out.gtkw.trace(f"{TOP}.{clock}")
        for title, side, lines in OVERVIEW:
            out.group(title, inside(side), lines, ready=False)
        for side in SIDES:
            with out.gtkw.group(f"all of card {side.upper()}", closed=True):
                for title, lines in CARD:
                    out.group(f"{side.upper()} {title}", inside(side), lines, closed=True)
    return waves, save


def print_summary(run, written, view):
    """Print how to open the waves that :func:`write` has ``written`` for the run folder ``run``, or open them."""
    if written is None:
        print(f"weft: there are no waves in {run}", file=sys.stderr)
        return
    viewer = shutil.which("gtkwave")
    if not view:
        print(f"waves: {command(*written)}")
    elif viewer and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([viewer, *map(str, written)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    else:
        why = "there is no display" if viewer else "GTKWave is not installed (Debian: apt-get install gtkwave)"
        print(f"weft: {why}; the command is: {command(*written)}")


def command(waves, save):
    """Return the command that opens the waves."""
    return shlex.join(["gtkwave", str(waves), str(save)])
