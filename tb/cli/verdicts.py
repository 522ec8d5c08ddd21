"""``weft bench``, ``formal``, ``mutants``, ``coverage``: figures, proofs, what the tests notice and reach."""

import contextlib
from typing import Annotated

import typer

from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import choice, number, option
from weft.tb.verify.mutate.rooms import COUNT, SEED


def bench(
    only: Annotated[list[str] | None, option("Run this benchmark alone; may be given several times.", "NAME")] = None,
    names: Annotated[bool, typer.Option("--list", help="Name the benchmarks and end.")] = False,
):
    """Benchmarks: a table, and JSON in sim_build/reports/bench.json; fails when a figure is below its bar."""
    with needs("sim"):
        from weft.tb.verify.bench.benchmark import BENCHMARKS
        from weft.tb.verify.bench.run import print_list, run
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
    """Formal proofs and broken copies that they must catch: a table, and JSON in sim_build/reports/formal.json."""
    with needs("formal"):
        from weft.tb.verify.proof.run import run, specifications
        if names:
            print("\n".join(specifications()))
            raise typer.Exit(0)
        raise typer.Exit(run([choice("the specification", name, specifications()) for name in only or ()], not anew))


def mutants(
    only: Annotated[list[str] | None, option("Faults of this room alone; may be given several times.", "NAME")] = None,
    names: Annotated[bool, typer.Option("--list", help="Name the rooms and end.")] = False,
    count: Annotated[str, option("Faults over all rooms; small rooms get some more.")] = str(COUNT),
    seed: Annotated[str, option("Of the drawing.")] = str(SEED),
    jobs: Annotated[str, option("Simulations at once.")] = "2",
):
    """Small faults in the gateware, each against the tests of its room; fails unless nearly all are noticed.

    An hour or two the first time; what is known is kept, and a run goes on where another was ended.
    """
    count, seed, jobs = number("--count", count, int, 1, 100_000), number("--seed", seed, int, 0, 1 << 30), number(
        "--jobs", jobs, int, 1, 256)
    with needs("dev"):
        from weft.tb.verify.mutate.rooms import ROOMS
        from weft.tb.verify.mutate.run import run
        if names:
            print("\n".join(ROOMS))
            raise typer.Exit(0)
        raise typer.Exit(run([choice("the room", name, ROOMS) for name in only or ()], count, seed, jobs))


def coverage():
    """Lines and toggles that the block benches reach, by room; JSON in sim_build/reports/coverage.json."""
    with needs("dev"):
        from weft.tb.verify.mutate.coverage import run
        raise typer.Exit(run())


def soak(budget: Annotated[str, option("Seconds after which no other run is started.", "SECONDS")] = "600",
         cards: Annotated[bool, typer.Option("--cards", help="Two real cards alone, seed after seed.")] = False,
         seed: Annotated[str | None, option("Two real cards, the run of this seed alone.")] = None,
         first: Annotated[str, option("With --cards: the first seed.")] = "1",
         jobs: Annotated[str, option("With --cards: simulators at once.")] = "1",
         scheduler: Annotated[str | None, option("With --cards: on the workers of this Dask scheduler, tcp://...",
                                                 "ADDRESS")] = None):
    """Runs with seeds drawn anew, of cards, the main job and recovery, until the time is over or one fails."""
    seconds = number("--budget", budget, float, 1, 10**6)
    if seed is not None:
        from weft.tb.verify.soak.report import repeat
        raise typer.Exit(repeat(number("--seed", seed, int, 0, 2**31 - 1)))
    if cards or scheduler:
        from weft.tb.verify.soak.report import report
        with needs("dask") if scheduler else contextlib.nullcontext():
            raise typer.Exit(report(seconds, first_seed=number("--first", first, int, 0, 2**31 - 1),
                                    jobs=number("--jobs", jobs, int, 1, 1024), scheduler=scheduler))
    with needs("dev"):
        from weft.tb.verify.soak.runs import run
        raise typer.Exit(run(seconds))
