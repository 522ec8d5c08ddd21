"""Layers of the source tree: a folder imports only from folders on earlier lines of :data:`LAYERS`."""

from weft.tb.sim.flow.imports import imports, names
from weft.tb.sim.flow.sources import ROOT

TOP = ("hdl", "driver", "model", "tb")

# Folders on one line do not import each other. A folder stands for the files that lie directly in it, and below
# `tb/test` and the folders of GROUPS for all files.
LAYERS = (
    "hdl/contract",
    "hdl/part",
    "hdl/mac hdl/ring hdl/pcie hdl/table hdl/pacing",
    "hdl/command hdl/transmit hdl/receive hdl/adamap/cache",
    "hdl/adamap/window hdl/adamap/builder",
    "hdl/adamap/match hdl/adamap/prefetch",
    "hdl/adamap",
    "hdl",
    "hdl/verilog",
    "hdl/board",
    "driver/terms",
    "driver/protocol driver/ibverbs",
    "driver/congestion driver/device driver/knitting driver/connection",
    "driver/queue driver/send driver/receive driver/operation driver/linux driver/soft/raw driver/vfio_user",
    "driver/datagram driver/engine driver/soft driver/pci",
    "driver/verbs",
    "driver/cm driver/channel driver/application driver/soft/rc",
    "driver/aio driver/serve driver/soft/serve",
    "driver/serve/direct",
    "driver",
    "model",
    "model/functional model/wan/path",
    "model/card model/wan/adamap",
    "model/wan/scheme",
    "model/wan",
    "model/fabric",
    "model/fabric/frame",
    "tb tb/sim/flow",
    "tb/sim/stream tb/sim/synth tb/sim/judge",
    "tb/sim/link tb/sim/pcie",
    "tb/sim/block tb/sim/pair",
    "tb/sim/hostile tb/sim/scenario tb/sim/wave",
    "tb/app/job tb/app/serve tb/app/stage tb/app/sweep/plans",
    "tb/app/sweep tb/app/machine",
    "tb/app/device tb/app/perf tb/app/report",
    "tb/verify/programs tb/verify/structure",
    "tb/verify/conformance tb/verify/conformance/suite",
    "tb/verify/calibrate tb/verify/document tb/verify/fault tb/verify/fuzz tb/verify/interop tb/verify/churn "
    "tb/verify/mutate tb/verify/proof tb/verify",
    "tb/verify/linux",
    "tb/verify/bench tb/verify/soak",
    "tb/cli",
    "tb/test",
)
GROUPS = ("tb/test", "tb/sim/block")
# Hardware, driver and models are side by side: outside its own part, each may import from these folders only.
SEES = {"driver": ("hdl/contract",), "model": ("hdl/contract", "driver/congestion", "driver/device", "driver/terms")}


def levels():
    """Return ``{folder: line}``: position of each folder in :data:`LAYERS`."""
    return {folder: line for line, folders in enumerate(LAYERS) for folder in folders.split()}


def folder(file):
    """Return the folder of ``file`` (a path below the root) in :data:`LAYERS`."""
    parent = str(file.parent)
    return next((group for group in GROUPS if f"{parent}/".startswith(f"{group}/")), parent)


def modules(root=ROOT):
    """Return ``{dotted name: file}`` of all Python files of the import packages."""
    found = {}
    for top in TOP:
        for file in sorted((root / top).rglob("*.py")):
            inside = file.relative_to(root)
            parts = [part for part in inside.with_suffix("").parts if part != "__init__"]
            found[".".join(["weft", *parts])] = inside
    return found


def imported(statements, package, known):
    """Yield the names of the modules in ``known`` that import statements in ``package`` import."""
    for module, name in names(statements, package):
        whole = module if name is None else f"{module}.{name}"
        yield from (found for found in (whole if whole in known else module,) if found in known)


def edges(root=ROOT):
    """Return ``{(folder, imported folder): sentences}``: every import between two folders, inside functions, too."""
    known, found = modules(root), {}
    for file in known.values():
        package = ".".join(["weft", *file.parent.parts])
        for name in imported(imports(root / file), package, known):
            ends = folder(file), folder(known[name])
            if ends[0] != ends[1]:
                found.setdefault(ends, set()).add(f"{file} imports {name}")
    return found


def reachable(arrows, start):
    """Return the ends of all chains that begin at ``start``; ``arrows`` are pairs of beginning and end."""
    seen, todo = set(), [start]
    while todo:
        here = todo.pop()
        new = {end for begin, end in arrows if begin == here} - seen
        seen |= new
        todo += new
    return seen


def allowed(source, target):
    """True if files in folder ``source`` may import from folder ``target``; both must be in :data:`LAYERS`."""
    level, part = levels(), source.split("/")[0]
    seen = target.split("/")[0] == part or part not in SEES or target in SEES[part]
    return level[target] < level[source] and seen
