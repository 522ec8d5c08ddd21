"""Modules of Verilog mapped to cells of an FPGA by Yosys, one by one, kept by content.

A module is mapped with empty modules in place of its sub-blocks: nothing is optimised across blocks, and a change of
one costs the mapping of that one. What is kept of a module, its *netlist*, is a dict:

``cells``
    ``[[type, {pin: [bit]}]]``, cells of the library; a bit is a number, or a string where it is constant.
``blocks``
    ``[[instance, module, {port: [bit]}]]``; the names of modules below this one begin with ``@`` in place of its own.
``ports``
    ``{port: [direction, [bit]]}``.
``names``
    ``{signal: [bit]}`` of those that the Verilog names.
``outputs``
    ``{type: [pin]}`` of the cells.
"""

import hashlib
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from weft.tb.sim.flow import process
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.simulate import BUILD_ROOT, locked
from weft.tb.sim.synth import yosys
from weft.tb.sim.synth.path import LUT_NS, MUX_NS

KEPT = BUILD_ROOT / "synth"
WORKERS = 2
VERSION = 1             # of what is kept of a module
TOGETHER = 150_000      # characters of Verilog that one run of Yosys maps; starting one takes seconds

_MODULE = re.compile(r"^(?=module )", re.MULTILINE)
_NAME = re.compile(r"module \\?([^\s(;]+)")
_ELEMENT = re.compile(r"(\\\S*?)\[(\d+)\](?=\S* )")
_PORT = re.compile(r"(\.?)\\(port\$\d+\$\d+) ")      # the number of a net of the design; with a dot, of a sub-block
_DUMMY = re.compile(r"(dump_module\$)\d+")        # a register of Yosys, numbered over the whole design
_INSTANCE = re.compile(r"^  \\?(\S+) +\S+ +\($.*?^  \);$", re.MULTILINE | re.DOTALL)

_ZEROS = re.compile(r"^  initial begin : \\?fill_.*\n    integer row;\n    for .*\n"
                    r"      .*\[row\] = \d+'h0+;\n  end\n", re.MULTILINE)

COMMAND = "synth_xilinx -family xcup -noiopad -noclkbuf -top holder"
# Yosys has the LUTs of a 7-series: 0.13 to 0.64 ns by the input, and 0.30 more for the wire, so it prefers several
# small ones to a large one. It is told what :mod:`weft.tb.sim.synth.path` counts; what each takes of the area is kept.
LUTS = {1: 1, 2: 2, 3: 3, 4: 3, 5: 3, 6: 5}
WIDE = {7: 10, 8: 20}       # LUTs behind a MUXF7, and a MUXF8
ULTRA = 'ram_style = "ultra"'       # of a memory; without it Yosys is not offered UltraRAM, which it would prefer


def luts():
    """Verilog of the LUTs, as Yosys has them ready to be timed: all inputs of one count the same."""
    text = []
    for names, muxes in ((LUTS, 0), (WIDE, 1)):
        for size, area in names.items():
            name = rf"\$__ABC9_LUT{size} " if muxes else f"LUT{size}"
            picoseconds = round(1000 * (LUT_NS + (size - max(LUTS)) * muxes * MUX_NS))
            ports = ", ".join(f"I{k}" for k in range(size))
            paths = "".join(f" (I{k} => O) = {picoseconds};" for k in range(size))
            text.append(f"(* abc9_lut={area} *) module {name}(output O, input {ports}); parameter INIT = 0;"
                        f" specify{paths} endspecify endmodule\n")
    return "".join(text)


class SynthesisFailed(Failure):
    """Yosys ended early. The message has the end of what it said."""


def modules_of(text):
    """``{module: its Verilog}``.

    An element of an array, ``\\a[1]``, becomes ``\\a<1>``: mapping by ABC would give the second bit of a port ``a``
    that name, and Yosys ends there (its issue 4349).

    A port that has no name, ``\\port$3568$0``, gets one by its place in its module, ``\\port$0``: otherwise a change of
    one block would give every other one new ports. The same holds for the register with which Yosys wakes processes.

    UltraRAM is zero when an FPGA starts; Yosys need not fill it row by row, which takes it hours.
    """
    modules = {}
    for module in _MODULE.split(text)[1:]:
        while (renamed := _ELEMENT.sub(r"\1<\2>", module)) != module:
            module = renamed
        if ULTRA in module:
            module = _ZEROS.sub("", module)
        module = _numbered(module)
        modules[_NAME.match(module)[1]] = module
    places = {name: _places(module) for name, module in modules.items()}
    return {name: _INSTANCE.sub(lambda instance: _placed(instance[0], places.get(instance[1], {}), "."),
                                _placed(module, places[name], "")) for name, module in modules.items()}


def _numbered(module):
    """The numbers of registers of Yosys' own by their place in the module."""
    seen = {}
    return _DUMMY.sub(lambda found: f"{found[1]}{seen.setdefault(found[0], len(seen))}", module)


def _places(module):
    """``{port: place}`` of the ports without a name."""
    ports = dict.fromkeys(port for dot, port in _PORT.findall(module) if not dot)
    return {port: place for place, port in enumerate(ports)}


def _placed(verilog, places, dot):
    """``verilog`` with these ports by their place; ``dot``: those of a sub-block, named where it is instantiated."""
    return _PORT.sub(lambda port: rf"{dot}\port${places[port[2]]} " if port[1] == dot else port[0], verilog)


def below(module, modules):
    """Names of the modules that ``module`` has instances of."""
    return {found for found in re.findall(r"^  \\?(\S+) +\S+ +\($", modules[module], re.MULTILINE) if found in modules}


def stub(module, modules):
    """An empty module with the ports of ``module``."""
    text = modules[module]
    head = text[:text.index(";") + 1]
    ports = re.findall(r"^  (?:input|output) [^;]*;$", text, re.MULTILINE)
    return "\n".join(["(* blackbox *)", head, *ports, "endmodule", ""])


def command(verilog):
    """What Yosys does with a module."""
    return f"{COMMAND} -uram" if ULTRA in verilog else COMMAND


def digest(module, modules):
    """By what the mapping of ``module`` is kept: its text and ports of its sub-blocks, its own name apart."""
    parts = [modules[module], *(stub(child, modules) for child in sorted(below(module, modules)))]
    parts = [re.sub(rf"(?<=[\\ ]){re.escape(module)}(?=[\s.(])", "@", part) for part in parts]
    made = "\0".join((*parts, command(modules[module]), luts(), yosys.version(), str(VERSION)))
    return hashlib.sha256(made.encode()).hexdigest()[:16]


def map_modules(groups, finished=lambda group, modules, seconds: None):
    """Map what is not kept yet, two groups at a time.

    Parameters
    ----------
    groups : dict
        ``{group: {module: Verilog}}``: a module finds the ports of its sub-blocks in any group.
    finished : callable(group, modules, seconds), optional
        Called when a group is there: how many modules were mapped, and the CPU time that took.

    Returns
    -------
    dict
        ``{module: digest}``; :func:`netlist` has the rest.

    Raises
    ------
    SynthesisFailed
    """
    everything = {name: text for modules in groups.values() for name, text in modules.items()}
    digests = {name: digest(name, everything) for name in everything}

    def work(group):
        with locked(BUILD_ROOT / ".locks" / f"synth-{group}"):
            missing, seen = [], set()
            for name in groups[group]:
                if digests[name] not in seen and not _file(digests[name]).exists():
                    missing.append(name)
                    seen.add(digests[name])
            seconds = sum(_map(group, part, everything, digests) for part in _parts(missing, everything))
        finished(group, len(missing), seconds)

    with ThreadPoolExecutor(WORKERS) as pool:
        # The largest first.
        list(pool.map(work, sorted(groups, key=lambda group: -sum(map(len, groups[group].values())))))
    return digests


def netlist(kept):
    """The netlist that is kept as ``kept``."""
    return json.loads(_file(kept).read_text())


def counted(kept):
    """``{type: cells}`` of the netlist that is kept as ``kept``, and the CPU seconds that it took: its share, by
    length, of what was mapped together.
    """
    return json.loads(_file(kept).with_suffix(".cells").read_text())


def _file(kept):
    return KEPT / f"{kept}.json"


def _parts(missing, modules):
    """Lists of modules, each for one run of Yosys, which does the same with all of its modules: what a run has finished
    is kept, whatever ends the next one."""
    parts = []
    for way in dict.fromkeys(command(modules[name]) for name in missing):
        length = TOGETHER
        for name in missing:
            if command(modules[name]) == way:
                if length + len(modules[name]) > TOGETHER:
                    parts.append([])
                    length = 0
                parts[-1].append(name)
                length += len(modules[name])
    return parts


def _map(group, missing, modules, digests):
    """Map these modules in one run of Yosys, keep their netlists; CPU seconds."""
    stubs = {child for name in missing for child in below(name, modules)} - set(missing)
    holder = "".join(f"  (* keep *) \\{name} b{index} ();\n" for index, name in enumerate(missing))
    text = "\n".join([*(stub(name, modules) for name in sorted(stubs)), *(modules[name] for name in missing),
                      f"module holder();\n{holder}endmodule\n"])
    found, seconds = synthesize(group, text, command(modules[missing[0]]), KEPT / f"{group}")
    whole = sum(len(modules[name]) for name in missing)
    for name in missing:
        kept, file = record(name, found[name], modules), _file(digests[name])
        counts = Counter(kind for kind, _ in kept["cells"])
        file.with_suffix(".cells").write_text(json.dumps([counts, seconds * len(modules[name]) / whole]))
        file.with_suffix(".part").write_text(json.dumps(kept, separators=(",", ":")))
        file.with_suffix(".part").rename(file)
    return seconds


def synthesize(name, text, way, where, keep=""):
    """Map the Verilog of design ``name`` in folder ``where`` by :func:`command`, ``keep`` before it: its modules as
    ``write_json`` of Yosys has them, and CPU seconds. Raises :class:`SynthesisFailed`."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "design.v").write_text(text)
    (where / "luts.v").write_text(luts())
    script = (f"read_verilog design.v; {keep}{way} -run begin:map_luts; read_verilog -overwrite -lib -specify luts.v; "
              f"scratchpad -set synth_xilinx.abc9.W 0; {way} -run map_luts:; write_json netlist.json")
    with open(where / "yosys.log", "wb") as log:
        status = process.run(yosys.yosys(script, "spent"), cwd=where, out=log)
    if status:
        raise SynthesisFailed(f"{name}: Yosys ended with status {status} and says\n"
                              + (where / "yosys.log").read_text(errors="replace")[-2000:])
    found = json.loads((where / "netlist.json").read_text())["modules"]
    (where / "netlist.json").unlink()                       # tens of megabytes
    return found, float((where / "spent").read_text())


def record(name, module, modules):
    """The netlist of a module, of the ``modules`` that were mapped, from what ``write_json`` of Yosys has of it."""
    cells, blocks, outputs = [], [], {}
    for instance, cell in module["cells"].items():
        kind = cell["type"]
        if kind in modules:
            blocks.append([instance, "@" + kind.removeprefix(name), cell["connections"]])
        elif kind != "$scopeinfo":
            if kind.startswith("$"):
                raise SynthesisFailed(f"{name}: the library has nothing for {kind}")
            cells.append([kind, cell["connections"]])
            outputs.setdefault(kind, [pin for pin, way in cell["port_directions"].items() if way == "output"])
    return {"cells": cells, "blocks": blocks, "outputs": outputs,
            "ports": {port: [each["direction"], each["bits"]] for port, each in module["ports"].items()},
            "names": {signal: each["bits"] for signal, each in module["netnames"].items() if not each["hide_name"]}}
