"""Which folder may import from which: the directions that keep the house readable, held as a table.

The table is in order: a folder imports from folders that stand above it, and only from those named in its line. So
there is no circle, and a new direction is a line somebody has to write here. A name that is imported below a function
counts as well as one at the top of a file.
"""

from pathlib import Path

import pytest

from weft.tb.flow.imports import import_statements, imports, names

ROOT = Path(__file__).resolve().parents[1]

# Files that stand directly in hdl/ and are not parts that its rooms share: what hardware and software agree on, and
# the card with its rooms of one file.
CONTRACTS = {"abi", "layout", "params", "wire"}
CARD = {"card", "csr", "report", "simple_nic", "supervisor"}

IMPORTS = {
    # What hardware and software agree on: standard library only.
    "contracts": "",
    # The card.
    "hdl": "contracts",
    "hdl/mac": "contracts hdl",
    "hdl/ring": "contracts hdl",
    "hdl/pcie": "contracts hdl",
    "hdl/table": "contracts hdl",
    "hdl/command": "contracts hdl hdl/table",
    "hdl/transmit": "contracts hdl hdl/mac hdl/table",
    "hdl/receive": "contracts hdl hdl/table",
    "hdl/adamap": "contracts hdl hdl/table",
    "hdl/card": "contracts hdl hdl/mac hdl/ring hdl/pcie hdl/table hdl/command hdl/transmit hdl/receive hdl/adamap",
    "hdl/verilog": "contracts hdl/card",
    "hdl/board": "contracts hdl hdl/mac hdl/pcie hdl/verilog",
    # The driver: from the device up to the programs.
    "driver/terms": "",
    "driver/device": "contracts driver/terms",
    "driver/memory": "contracts driver/terms",
    "driver/queue": "contracts driver/device driver/terms",
    "driver/protocol": "contracts",
    "driver/knitting": "contracts driver/protocol",
    "driver/send": "contracts driver/terms driver/protocol driver/knitting",
    "driver/receive": "contracts driver/protocol driver/knitting",
    "driver/operation": "contracts driver/terms driver/memory driver/protocol",
    "driver/linux": "contracts driver/terms driver/device driver/memory",
    "driver/engine": "contracts driver/terms driver/device driver/queue driver/protocol driver/receive "
                     "driver/operation",
    "driver/connection": "contracts driver/protocol",
    "driver/verbs": "contracts driver/terms driver/device driver/memory driver/queue driver/protocol driver/knitting "
                    "driver/send driver/receive driver/operation driver/engine driver/connection",
    "driver/cm": "contracts driver/terms driver/connection driver/verbs",
    "driver/aio": "driver/terms driver/connection driver/verbs driver/cm",
    "driver/channel": "driver/terms driver/verbs",
    "driver/application": "driver/terms driver/verbs",
    "driver/ibverbs": "contracts",
    "driver/serve": "driver/terms driver/device driver/ibverbs driver/queue driver/operation driver/connection "
                    "driver/verbs driver/cm",
    # RDMA in software: beside the card's driver, of which it shares the words and nothing that moves.
    "driver/soft/ports": "",
    "driver/soft/raw": "contracts driver/terms driver/memory",
    "driver/soft/rc": "contracts driver/terms driver/memory driver/protocol driver/verbs",
    "driver/soft/serve": "driver/terms driver/protocol driver/verbs driver/soft/ports driver/soft/rc",
    "driver/soft": "contracts driver/soft/raw",
    # The models.
    "model": "contracts",
    "model/functional": "contracts model driver/device",
    "model/card": "contracts model/functional",
    "model/card/machine": "contracts model model/functional model/card",
    "model/wan/path": "model",
    "model/wan/adamap": "contracts model model/wan/path",
    "model/wan/scheme": "model model/wan/path model/wan/adamap",
    "model/wan": "contracts model model/wan/path model/wan/adamap model/wan/scheme",
    # The benches, and above all the command line, which starts them.
    "tb/flow": "contracts hdl hdl/verilog",
    "tb/world": "contracts hdl hdl/mac hdl/pcie hdl/verilog driver/device model/card tb/flow",
    "tb/board": "contracts hdl/mac hdl/pcie hdl/card hdl/verilog hdl/board tb/flow tb/world",
    "tb/judge": "contracts driver/queue model/functional tb/flow",
    "tb/blocks/mac": "contracts hdl hdl/mac hdl/transmit tb/flow",
    "tb/blocks/pcie": "contracts hdl hdl/pcie tb/flow tb/world",
    "tb/blocks/ring": "contracts hdl hdl/ring tb/flow tb/blocks/pcie",
    "tb/blocks/table": "contracts hdl hdl/table model/functional tb/flow",
    "tb/blocks/command": "contracts hdl hdl/table hdl/command model/functional tb/flow",
    "tb/blocks/transmit": "contracts hdl hdl/table hdl/transmit tb/flow tb/judge",
    "tb/blocks/receive": "contracts hdl hdl/table hdl/receive model/functional tb/flow",
    "tb/blocks/adamap": "contracts hdl hdl/table hdl/adamap model/functional tb/flow",
    "tb/blocks": "contracts hdl hdl/mac hdl/card tb/flow tb/blocks/pcie",
    "tb/lives": "contracts hdl hdl/adamap driver/queue driver/protocol driver/knitting driver/receive driver/engine "
                "model model/functional tb/flow tb/blocks/adamap",
    "tb/software": "contracts driver/terms driver/device driver/memory driver/queue driver/protocol driver/knitting "
                   "driver/send driver/receive driver/operation driver/engine driver/verbs driver/aio "
                   "driver/application model model/functional tb/judge tb/lives tb/flow",
    "tb/connection": "contracts driver/terms driver/protocol driver/connection driver/verbs driver/cm driver/aio model "
                     "model/functional tb/world tb/judge tb/flow",
    "tb/linux": "driver/terms driver/linux driver/verbs model model/functional tb/flow",
    "tb/interop": "contracts driver/terms driver/verbs driver/soft/ports driver/soft/rc model model/functional tb/flow "
                  "tb/world",
    "tb/conformance": "driver/terms driver/verbs driver/cm model model/functional",
    "tb/cards": "contracts driver/terms driver/device driver/queue driver/connection driver/engine driver/verbs "
                "driver/application model model/functional tb/flow tb/world tb/judge tb/blocks/receive tb/software "
                "tb/connection",
    "tb/serve": "contracts driver/terms driver/ibverbs driver/connection driver/cm driver/memory driver/serve "
                "driver/verbs model model/functional model/card tb/flow tb/world",
    "tb/stage": "contracts driver/terms model model/functional model/card tb/flow tb/world tb/cards tb/software",
    "tb/soft": "contracts driver/terms driver/protocol driver/verbs driver/soft/ports driver/soft/raw driver/soft/rc "
               "driver/soft/serve driver/soft model model/functional tb/world tb/judge tb/stage tb/flow",
    "tb/perf": "driver/terms driver/verbs tb/flow tb/stage",
    "tb/tool": "contracts driver/terms driver/verbs tb/stage",
    "tb/fuzz": "contracts driver/terms driver/verbs driver/application model/functional tb/flow tb/world tb/judge "
               "tb/blocks/receive tb/software tb/cards",
    "tb/soak": "contracts driver/terms driver/device driver/queue driver/verbs tb/flow tb/world tb/judge tb/cards "
               "tb/fuzz",
    "tb/channel": "driver/terms driver/verbs driver/channel model tb/software tb/flow",
    "tb/proof": "contracts hdl hdl/ring hdl/pcie hdl/receive hdl/adamap hdl/card tb/flow",
    "tb/wave": "contracts tb/flow tb/world",
    "tb/document": "contracts hdl hdl/ring hdl/command hdl/adamap hdl/card hdl/verilog hdl/board driver/terms "
                   "driver/verbs driver/soft/raw model/functional tb/flow",
    "tb/job": "contracts driver/terms driver/verbs driver/application model "
              "model/functional model/card tb/flow tb/world tb/judge tb/cards tb/wave",
    "tb/measure": "contracts hdl hdl/table hdl/adamap driver/terms driver/ibverbs driver/verbs driver/application "
                  "driver/soft/ports driver/soft/raw driver/soft/rc model model/functional model/card "
                  "model/card/machine model/wan tb/flow tb/world tb/judge tb/blocks/pcie tb/blocks/adamap tb/lives "
                  "tb/software tb/cards tb/job tb/fuzz tb/soak tb/serve",
    "tb/mutate": "hdl/verilog tb/flow tb/measure",
    "tb/calibrate": "contracts driver/terms driver/verbs driver/application model model/functional model/card "
                    "model/card/machine tb/flow tb/world tb/cards tb/job tb/measure",
    "tb/wan": "contracts model model/functional model/wan/path model/wan/adamap model/wan tb/flow",
    "tb/sweep": "model/card model/wan tb/flow tb/world tb/calibrate",
    "tb/report": "model/wan/path model/wan tb/calibrate tb/sweep",
    "tb/cli": "contracts hdl/mac hdl/verilog hdl/board driver/engine driver/ibverbs driver/soft/ports "
              "driver/soft/serve tb/flow tb/cards tb/serve tb/stage tb/perf tb/tool tb/document tb/proof tb/measure "
              "tb/mutate tb/job tb/calibrate tb/soak tb/sweep tb/report tb/interop",
    "tb": "contracts model/functional model/wan tb/flow tb/stage tb/document tb/measure tb/job tb/perf tb/tool tb/soak "
          "tb/wan tb/sweep tb/interop tb/report tb/cli",
}


def folder(file):
    """The table's name of the folder of ``file``, a path below the root."""
    if file.parts[0] == "hdl" and len(file.parts) == 2:
        return "contracts" if file.stem in CONTRACTS else "hdl/card" if file.stem in CARD else "hdl"
    return str(file.parent)


def modules():
    """``{dotted name: file}`` of all Python files of the import packages."""
    found = {}
    for top in ("hdl", "model", "driver", "tb"):
        for file in sorted((ROOT / top).rglob("*.py")):
            inside = file.relative_to(ROOT)
            parts = [part for part in inside.with_suffix("").parts if part != "__init__"]
            found[".".join(["weft", *parts])] = inside
    return found


def imported(statements, package, known):
    """Names of the modules of the project that import statements in ``package`` import."""
    for module, name in names(statements, package):
        whole = module if name is None else f"{module}.{name}"
        yield from (found for found in (whole if whole in known else module,) if found in known)


def arrows():
    """``{(folder, folder): the files that make the arrow}``"""
    known, found = modules(), {}
    for file in known.values():
        package = ".".join(["weft", *file.parent.parts])
        for name in imported(imports(ROOT / file), package, known):
            target = known[name]
            if folder(target) != folder(file):
                found.setdefault((folder(file), folder(target)), set()).add(f"{file} imports {name}")
    return found


@pytest.fixture(scope="module")
def found():
    return arrows()


def test_every_import_follows_the_table(found):
    for (source, target), files in found.items():
        assert source in IMPORTS, f"folder {source} has no line in the table"
        assert target in IMPORTS[source].split(), f"no arrow {source} -> {target}: {'; '.join(sorted(files))}"


def test_every_line_of_the_table_is_true(found):
    for source, targets in IMPORTS.items():
        for target in targets.split():
            assert (source, target) in found, f"nothing in {source} imports from {target} any more"


def test_the_table_has_no_circle():
    """Each folder stands below those it imports from."""
    above = set()
    for source, targets in IMPORTS.items():
        assert set(targets.split()) <= above, source
        above.add(source)


def test_an_import_is_seen_wherever_it_stands():
    known = {"weft.tb.flow.stream": None, "weft.driver.verbs.qp": None, "weft.driver.terms.wc": None}
    text = "def f():\n    from weft.tb.flow import stream\nfrom ..verbs.qp import QP\nimport weft.driver.terms.wc\n"
    assert sorted(imported(import_statements(text), "weft.driver.application", known)) == sorted(known)
