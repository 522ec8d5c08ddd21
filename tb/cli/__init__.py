"""The command line ``weft``: thin commands that load what they need when they run."""

import typer

from weft.tb.cli.card import regs, synth, verilog
from weft.tb.cli.simulation import sim
from weft.tb.cli.verdicts import bench, formal, mutants

COMMANDS = (
    sim,
    verilog,
    synth,
    regs,
    bench,
    formal,
    mutants,
)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Weft: an RDMA network card whose receive window has no hardware limit.")
for command in COMMANDS:
    app.command()(command)
