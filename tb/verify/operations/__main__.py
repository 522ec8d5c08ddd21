"""``python -m weft.tb.verify.operations functional | rtl``: random traffic for runs longer than the tests."""

from typing import Annotated

import typer

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.operations.rtl_cases import run_operations
from weft.tb.verify.operations.traffic import functional_traffic

REPORT_EVERY = 1_000
Seed = Annotated[int, typer.Option(help="Random by default.", show_default=False)]
app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def functional(count: Annotated[int, typer.Option(help="Number of operations.", min=1)] = 100_000,
               seed: Seed = None,
               qps: Annotated[int, typer.Option(help="QP pairs.", min=2)] = 64,
               longest: Annotated[int, typer.Option(help="Bytes of the longest message.", min=0)] = 1 << 20):
    """Run operations of all kinds in both directions, with losses, over functional cards."""
    seed = drawn_seed() if seed is None else seed
    print(f"seed {seed}; run it again: python -m weft.tb.verify.operations functional --count {count} --seed {seed} "
          f"--qps {qps} --longest {longest}", flush=True)
    shown = 0

    def report_progress(posted):
        nonlocal shown
        if posted - shown >= REPORT_EVERY:
            shown = posted
            print(posted, flush=True)

    traffic, links = functional_traffic(seed, qps=qps, longest=longest)
    counts = traffic.run(count, report_progress)
    traffic.close()
    for name, number in sorted(counts.items()):
        print(f"{name:24}{number:14}")
    for name, link in zip(("lost there", "lost back"), links, strict=True):
        print(f"{name:24}{sum(link.counters.lost.values()):14}")


@app.command()
def rtl(count: Annotated[int, typer.Option(help="Number of operations.", min=1)] = 1_000, seed: Seed = None):
    """Run operations of all kinds in both directions, with losses, over two simulated cards."""
    run_operations(count, seed=seed, timeout_s=7_200)
    print(f"{count} operations, all correct")


if __name__ == "__main__":
    app()
