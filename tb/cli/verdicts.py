"""``weft bench``, ``calibrate``, ``formal``, ``mutants``, ``coverage``, ``soak``: benchmarks, proofs, long runs."""

from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import SEED_MAX, BadSetting, Setting
from weft.tb.cli.options import check_names
from weft.tb.sim.flow.aliases import option_names
from weft.tb.verify.mutate.subsystems import COUNT, SEED


def bench(
    only: Annotated[list[str] | None, Setting("Run this benchmark alone; may be given several times.",
                                              metavar="NAME")] = None,
    names: Annotated[bool, Setting("Name the benchmarks and end.", names=("--list",))] = False,
):
    """Run benchmarks: a table, and JSON in sim_build/reports/bench.json; fails when a figure misses its bar."""
    from weft.tb.sim.flow.aliases import BENCHMARKS as FORMER
    from weft.tb.verify.bench.benchmark import BENCHMARKS
    from weft.tb.verify.bench.run import print_list, run
    if names:
        print_list()
        raise typer.Exit(0)
    raise typer.Exit(run(check_names("only", [FORMER.get(name, name) for name in only or ()], BENCHMARKS)))


def calibrate(
    only: Annotated[list[str] | None, Setting("Only scenarios whose names begin so; may be given several times.",
                                              metavar="NAME")] = None,
):
    """Compare gateware and timing model under the same traffic and losses: time, stalls and sequences."""
    from weft.tb.verify.calibrate.run import run
    raise typer.Exit(run(only or []))


def formal(
    only: Annotated[list[str] | None, Setting("Prove this specification alone; may be given several times.",
                                              metavar="NAME")] = None,
    names: Annotated[bool, Setting("Name the specifications and end.", names=("--list",))] = False,
    fresh: Annotated[bool, Setting("Repeat cached proofs.", names=option_names("--fresh"))] = False,
):
    """Run formal proofs, and faulty copies that they must catch: a table, and JSON in sim_build/reports/formal.json."""
    from weft.tb.verify.proof.run import run, specifications
    if names:
        print("\n".join(specifications()))
        raise typer.Exit(0)
    raise typer.Exit(run(check_names("only", only, specifications()), not fresh))


def mutants(
    only: Annotated[list[str] | None, Setting("Faults of this subsystem alone; may be given several times.",
                                              metavar="NAME")] = None,
    names: Annotated[bool, Setting("Name the subsystems and end.", names=("--list",))] = False,
    count: Annotated[int, Setting("Faults in total; small subsystems get more.", least=1, most=100_000)] = COUNT,
    seed: Annotated[int, Setting("Seed of the drawing.", least=0, most=1 << 30)] = SEED,
    jobs: Annotated[int, Setting("Simulations at once.", least=1, most=256)] = 2,
):
    """Put small faults into the gateware, each against the tests of its subsystem; fails unless nearly all are caught.

    The first run takes an hour or two. Results are cached, and a run continues where another one was stopped.
    """
    from weft.tb.verify.mutate.subsystems import SUBSYSTEMS
    if names:
        print("\n".join(SUBSYSTEMS))
        raise typer.Exit(0)
    from weft.tb.verify.mutate.run import run
    raise typer.Exit(run(check_names("only", only, SUBSYSTEMS), count, seed, jobs))


def coverage(
    only: Annotated[list[str] | None, Setting("Benches of this file or folder alone, without a report; may be given "
                                              "several times.", metavar="PATH")] = None,
):
    """Measure lines and toggles that the block benches reach, by subsystem; JSON in sim_build/reports/coverage.json."""
    from weft.tb.verify.mutate.coverage import run
    for path in only or ():
        if not Path(path).exists():
            raise BadSetting("only", path, "there is no such file or folder; the benches are in tb/test/hdl")
    raise typer.Exit(run([str(Path(path).absolute()) for path in only or ()]))


def soak(
    budget: Annotated[float, Setting("Time after which no other run is started.", unit="seconds", least=1,
                                     most=10**6)] = 600,
    cards: Annotated[bool, Setting("Two real cards alone, seed after seed.")] = False,
    seed: Annotated[int | None, Setting("Two real cards, the run of this seed alone.", least=0, most=SEED_MAX)] = None,
    first: Annotated[int, Setting("With --cards: the first seed.", least=0, most=SEED_MAX)] = 1,
    jobs: Annotated[int, Setting("With --cards: simulators at once.", least=1, most=1024)] = 1,
    scheduler: Annotated[str | None, Setting("With --cards: on the workers of this Dask scheduler, tcp://...",
                                             metavar="ADDRESS")] = None,
):
    """Run cards, the main job and recovery with new random seeds until the time is over or a run fails."""
    if seed is not None:
        from weft.tb.verify.soak.report import repeat
        raise typer.Exit(repeat(seed))
    if cards or scheduler:
        from weft.tb.verify.soak.report import report
        raise typer.Exit(report(budget, first_seed=first, jobs=jobs, scheduler=scheduler))
    from weft.tb.verify.soak.runs import run
    raise typer.Exit(run(budget))
