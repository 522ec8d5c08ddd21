"""Prerequisites of each command, checked before any work: an extra of the package, and a checkout."""

import re
from importlib import metadata

from weft.tb.cli.failures import fail
from weft.tb.sim.flow.failure import how_to_install
from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.bench.benchmark import BENCHMARKS

PROJECT = "weft-rnic"
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<inner>[\w,]+)\])?[^;]*; *extra *== *['\"](?P<extra>\w+)['\"]")


def _on_rtl(options):
    return "sim" if options.get("backend") == "rtl" else ""


def _bench(options):
    chosen = set(options["only"] or BENCHMARKS)
    if options["names"]:
        return ""
    if "synth" in chosen:
        return "dev"
    return "sim,model" if any(name.startswith(("model", "card-bytes")) for name in chosen) else "sim"


def _soak(options):
    if options["scheduler"]:
        return "sim,dask"
    return "sim" if options["cards"] or options["seed"] is not None else "dev"


def _serves_rtl(options):
    return not (options["device"] or options["names"]) and "rtl" in (options["backend"] or ("rtl",))


# Extra of a command, or a function of its options that returns it. A command that is not listed needs "sim" for RTL.
EXTRAS = {
    "sim": "sim",
    "verilog": lambda options: "formal" if options["yosys"] else "sim" if options["lint"] else "hdl",
    "synth": lambda options: "dev" if options["place"] else "formal",
    "bench": _bench,
    "calibrate": "sim",
    "sweep": lambda options: "sim,model" if options["of"] == "cards" else "model",
    "report": "model",
    "formal": "formal",
    "mutants": lambda options: "" if options["names"] else "dev",
    "coverage": "dev",
    "soak": _soak,
    "interop": "sim",
    "conformance": lambda options: "sim" if _serves_rtl(options) else "",
}
RUN_TESTS = ("mutants", "coverage", "soak")      # with extra "dev", they run the project's tests


def extra_of(command, options):
    """Return the extra that a command needs with these options, as pip takes it; empty for none."""
    needed = EXTRAS.get(command, _on_rtl)
    return needed(options) if callable(needed) else needed


def packages(extra):
    """Return the names of the packages of an extra, and of the extras that it contains."""
    found, wanted, seen = [], extra.split(",") if extra else [], set()
    requirements = [match for text in metadata.requires(PROJECT) or () if (match := _REQUIREMENT.match(text))]
    while wanted:
        seen.add(one := wanted.pop())
        for requirement in requirements:
            if requirement["extra"] != one:
                continue
            if requirement["name"] == PROJECT:
                wanted += set(requirement["inner"].split(",")) - seen
            else:
                found.append(requirement["name"])
    return found


def _missing(name):
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return True
    return False


def check_needs(command, options):
    """End with one sentence and exit status 1 if a command cannot work here.

    It needs all packages of its extra, and the project's tests if it runs them: the installed package has none.
    """
    extra = extra_of(command, options)
    if command in RUN_TESTS and extra == "dev" and not (ROOT / "tb/test").is_dir():
        fail(f"weft {command} runs the project's tests, which the installed package does not contain; run it in a "
             "checkout of the project")
    if missing := next(filter(_missing, packages(extra)), None):
        fail(f"this command needs the Python package {missing!r}; {how_to_install(extra)}")
