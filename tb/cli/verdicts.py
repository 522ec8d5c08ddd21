"""``weft bench``, ``formal``: figures and proofs."""

from typing import Annotated

import typer

from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import choice, option


def bench(
    only: Annotated[list[str] | None, option("Run this benchmark alone; may be given several times.", "NAME")] = None,
    names: Annotated[bool, typer.Option("--list", help="Name the benchmarks and end.")] = False,
):
    """Benchmarks: a table, and JSON in sim_build/reports/bench.json; fails when a figure is below its bar."""
    with needs("sim"):
        from weft.tb.measure.benchmark import BENCHMARKS
        from weft.tb.measure.run import print_list, run
        if names:
            print_list()
            raise typer.Exit(0)
        raise typer.Exit(run([choice("the benchmark", name, BENCHMARKS) for name in only or ()]))


def formal(
    only: Annotated[list[str] | None, option("Prove this specification alone; may be given several times.",
                                              "NAME")] = None,
    names: Annotated[bool, typer.Option("--list", help="Name the specifications and end.")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Decide what is known already, too.")] = False,
):
    """Formal proofs: a table, and JSON in sim_build/reports/formal.json; fails unless all is proven."""
    with needs("formal"):
        from weft.tb.proof.run import run, specifications
        if names:
            print("\n".join(specifications()))
            raise typer.Exit(0)
        raise typer.Exit(run([choice("the specification", name, specifications()) for name in only or ()], not anew))
