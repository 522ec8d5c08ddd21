"""Command line ``weft``: thin commands that import their modules when they run."""

import codecs
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from weft.tb.cli.card import regs, synth, verilog
from weft.tb.cli.conformance import conformance
from weft.tb.cli.failures import with_messages
from weft.tb.cli.link import LINK_COMMANDS
from weft.tb.cli.machine import devices, linux, machine
from weft.tb.cli.options import with_options
from weft.tb.cli.perf import COMMANDS as TESTS
from weft.tb.cli.perf import PANEL
from weft.tb.cli.serve import run, serve
from weft.tb.cli.simulation import sim
from weft.tb.cli.soft import interop, soft_server
from weft.tb.cli.sweep import report, sweep
from weft.tb.cli.tools import counters, devinfo
from weft.tb.cli.usage import Commands
from weft.tb.cli.verdicts import bench, calibrate, coverage, formal, mutants, soak

COMMANDS = (
    sim,
    verilog,
    synth,
    regs,
    bench,
    calibrate,
    sweep,
    report,
    formal,
    mutants,
    coverage,
    soak,
    interop,
    conformance,
    soft_server,
    serve,
    run,
    devinfo,
    counters,
    devices,
    machine,
    linux,
)


IN_ASCII = {"µ": "u", "–": "-", "…": "...", "±": "+-", "²": "^2"}


def _in_ascii(error):
    """Replace characters that an encoding lacks: by those of :data:`IN_ASCII`, or by question marks."""
    return "".join(IN_ASCII.get(one, "?") for one in error.object[error.start:error.end]), error.end


codecs.register_error("weft", _in_ascii)


class CommandLine(typer.Typer):
    """Commands for a terminal of any locale: characters that its encoding lacks are replaced, see :data:`IN_ASCII`."""

    def __call__(self, *arguments, **options):
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="weft")
        return super().__call__(*arguments, **options)


app = CommandLine(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  context_settings={"help_option_names": ["-h", "--help"]})


def _print_version(wanted):
    if wanted:
        print(f"weft {version('weft-rnic')}")
        raise typer.Exit


@app.callback()
def _weft(_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True,
                                                 callback=_print_version)] = False):
    """Weft: an RDMA network card that keeps its receive window in host memory."""


link = typer.Typer(no_args_is_help=True)
app.add_typer(link, name="link", help="Faults on the links of a running `weft serve`.")
for command in LINK_COMMANDS:
    link.command()(with_messages(with_options(command)))
for command in COMMANDS:
    app.command()(with_messages(with_options(command)))
for test in TESTS:
    app.command(test.__name__, rich_help_panel=PANEL)(with_messages(with_options(test)))
