"""Modules of Verilog mapped to FPGA cells by Yosys, one by one, and cached by content.

A module is mapped with empty modules instead of its sub-blocks: there is no optimization across blocks, and a change
of one block requires only the mapping of that block. The cached *netlist* of a module is a dict:

``cells``
    ``[[type, {pin: [bit]}]]``, cells of the library; a bit is a number, or a string where it is constant.
``blocks``
    ``[[instance, module, {port: [bit]}]]``; the names of modules below this one begin with ``@`` instead of its name.
``ports``
    ``{port: [direction, [bit]]}``.
``names``
    ``{signal: [bit]}`` of the signals that have a name in the Verilog.
``outputs``
    ``{type: [pin]}`` of the output pins of the cells.
"""

import hashlib
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from weft.tb.sim.flow.simulate import BUILD_ROOT, locked
from weft.tb.sim.flow.tools import write_whole
from weft.tb.sim.synth import yosys
from weft.tb.sim.synth.path import LUT_NS, MUX_NS

KEPT = BUILD_ROOT / "synth"
WORKERS = 2
VERSION = 1             # of the format of a cached netlist
TOGETHER = 150_000      # characters of Verilog per run of Yosys; its start takes seconds

_MODULE = re.compile(r"^(?=module )", re.MULTILINE)
_NAME = re.compile(r"module \\?([^\s(;]+)")
_ELEMENT = re.compile(r"(\\\S*?)\[(\d+)\](?=\S* )")
_PORT = re.compile(r"(\.?)\\(port\$\d+\$\d+) ")      # number of a net of the design; with a dot, port of a sub-block
_DUMMY = re.compile(r"(dump_module\$)\d+")        # register added by Yosys, numbered across the whole design
_INSTANCE = re.compile(r"^  \\?(\S+) +\S+ +\($.*?^  \);$", re.MULTILINE | re.DOTALL)

_ZEROS = re.compile(r"^  initial begin : \\?fill_.*\n    integer row;\n    for .*\n"
                    r"      .*\[row\] = \d+'h0+;\n  end\n", re.MULTILINE)

COMMAND = "synth_xilinx -family xcup -noiopad -noclkbuf -top holder"
# Yosys has the timing of 7-series LUTs: 0.13 to 0.64 ns by input, plus 0.30 for the wire, so that it prefers several
# small LUTs to a large one. These override the delays with those of :mod:`weft.tb.sim.synth.path`, and keep the areas.
LUTS = {1: 1, 2: 2, 3: 3, 4: 3, 5: 3, 6: 5}
WIDE = {7: 10, 8: 20}       # LUTs followed by a MUXF7, and a MUXF8
ULTRA = 'ram_style = "ultra"'       # of a memory; UltraRAM is enabled only with it, since Yosys would prefer it always


def luts():
    """Return the Verilog of the LUTs in the form that Yosys uses for timing: all inputs of a LUT have equal delays."""
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


def modules_of(text):
    """Return ``{module: Verilog}`` of a Verilog text, with names and initial values adapted.

    - An element of an array, ``\\a[1]``, becomes ``\\a<1>``: mapping by ABC would give the second bit of a port ``a``
      that name, on which Yosys aborts (its issue 4349).
    - A port without a name, ``\\port$3568$0``, is named after its position in its module, ``\\port$0``: otherwise a
      change of one block would rename the ports of all others. The same holds for the register that Yosys adds to
      trigger processes.
    - UltraRAM is zero when an FPGA starts; Yosys need not initialize it row by row, which takes hours.
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
    """Renumber the registers added by Yosys by their order in the module."""
    seen = {}
    return _DUMMY.sub(lambda found: f"{found[1]}{seen.setdefault(found[0], len(seen))}", module)


def _places(module):
    """Return ``{port: position}`` of the ports without a name."""
    ports = dict.fromkeys(port for dot, port in _PORT.findall(module) if not dot)
    return {port: place for place, port in enumerate(ports)}


def _placed(verilog, places, dot):
    """Rename these ports by position; ``dot``: ports of a sub-block, where it is instantiated."""
    return _PORT.sub(lambda port: rf"{dot}\port${places[port[2]]} " if port[1] == dot else port[0], verilog)


def below(module, modules):
    """Return the names of the modules that ``module`` instantiates."""
    return {found for found in re.findall(r"^  \\?(\S+) +\S+ +\($", modules[module], re.MULTILINE) if found in modules}


def stub(module, modules):
    """Return an empty module with the ports of ``module``."""
    text = modules[module]
    head = text[:text.index(";") + 1]
    ports = re.findall(r"^  (?:input|output) [^;]*;$", text, re.MULTILINE)
    return "\n".join(["(* blackbox *)", head, *ports, "endmodule", ""])


def command(verilog):
    """Return the Yosys command that maps a module."""
    return f"{COMMAND} -uram" if ULTRA in verilog else COMMAND


def digest(module, modules):
    """Return the cache key of ``module``: a hash of its text and its sub-blocks' ports, independent of its name."""
    parts = [modules[module], *(stub(child, modules) for child in sorted(below(module, modules)))]
    parts = [re.sub(rf"(?<=[\\ ]){re.escape(module)}(?=[\s.(])", "@", part) for part in parts]
    made = "\0".join((*parts, command(modules[module]), luts(), yosys.version(), str(VERSION)))
    return hashlib.sha256(made.encode()).hexdigest()[:16]


def map_modules(groups, finished=lambda group, modules, seconds: None):
    """Map the modules that are not cached, two groups at a time; return ``{module: digest}`` for :func:`netlist`.

    ``groups`` is ``{group: {module: Verilog}}``: a module finds the ports of its sub-blocks in any group. ``finished``
    is called after each group with the number of mapped modules and the CPU time.

    Raises
    ------
    SynthesisFailed
    """
    everything = {name: text for modules in groups.values() for name, text in modules.items()}
    digests = {name: digest(name, everything) for name in everything}

    def work(group):
        with locked(BUILD_ROOT / ".locks" / f"synth-{group}"):
            missing = {}
            for name in groups[group]:
                if not _file(digests[name]).exists():
                    missing.setdefault(digests[name], name)
            parts = _parts(list(missing.values()), everything)
            seconds = sum(_map(group, part, everything, digests) for part in parts)
        finished(group, len(missing), seconds)

    with ThreadPoolExecutor(WORKERS) as pool:
        # The largest first.
        list(pool.map(work, sorted(groups, key=lambda group: -sum(map(len, groups[group].values())))))
    return digests


def netlist(kept):
    """Return the cached netlist with digest ``kept``."""
    return json.loads(_file(kept).read_text())


def counted(kept):
    """Return ``({type: cells}, CPU seconds)`` of the cached netlist with digest ``kept``.

    The time is the module's share, by length of Verilog, of the run that mapped it.
    """
    return json.loads(_file(kept).with_suffix(".cells").read_text())


def _file(kept):
    return KEPT / f"{kept}.json"


def _parts(missing, modules):
    """Return lists of modules, each for one run of Yosys with one command.

    Results of finished runs are kept if a later run fails.
    """
    parts = []
    for flow in dict.fromkeys(command(modules[name]) for name in missing):
        length = TOGETHER
        for name in missing:
            if command(modules[name]) == flow:
                if length + len(modules[name]) > TOGETHER:
                    parts.append([])
                    length = 0
                parts[-1].append(name)
                length += len(modules[name])
    return parts


def _map(group, missing, modules, digests):
    """Map these modules in one run of Yosys and cache their netlists; return the CPU seconds."""
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
        write_whole(file, json.dumps(kept, separators=(",", ":")))
    return seconds


def synthesize(name, text, flow, where, keep=""):
    """Map the Verilog of design ``name`` in folder ``where``.

    ``flow`` is the command of :func:`command`; ``keep`` runs before it. Return the modules as in Yosys' ``write_json``,
    and the CPU seconds. Raise ``SynthesisFailed`` if Yosys fails.
    """
    where.mkdir(parents=True, exist_ok=True)
    (where / "design.v").write_text(text)
    (where / "luts.v").write_text(luts())
    yosys.run(f"read_verilog design.v; {keep}{flow} -run begin:map_luts; read_verilog -overwrite -lib -specify luts.v; "
              f"scratchpad -set synth_xilinx.abc9.W 0; {flow} -run map_luts:; write_json netlist.json",
              where, name, "spent")
    found = json.loads((where / "netlist.json").read_text())["modules"]
    (where / "netlist.json").unlink()                       # tens of megabytes
    return found, float((where / "spent").read_text())


def record(name, module, modules):
    """Return the netlist of module ``name`` from its entry ``module`` in the output of Yosys' ``write_json``."""
    cells, blocks, outputs = [], [], {}
    for instance, cell in module["cells"].items():
        kind = cell["type"]
        if kind in modules:
            blocks.append([instance, "@" + kind.removeprefix(name), cell["connections"]])
        elif kind != "$scopeinfo":
            if kind.startswith("$"):
                raise yosys.SynthesisFailed(f"{name}: the library has nothing for {kind}")
            cells.append([kind, cell["connections"]])
            outputs.setdefault(kind, [pin for pin, flow in cell["port_directions"].items() if flow == "output"])
    return {"cells": cells, "blocks": blocks, "outputs": outputs,
            "ports": {port: [each["direction"], each["bits"]] for port, each in module["ports"].items()},
            "names": {signal: each["bits"] for signal, each in module["netnames"].items() if not each["hide_name"]}}
