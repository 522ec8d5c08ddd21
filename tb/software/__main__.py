"""``python -m weft.tb.software operations``: the random traffic that is too long for the tests."""

from typing import Annotated

import typer

from weft.tb.flow.seed import drawn_seed
from weft.tb.software.operation_traffic import functional_traffic

app = typer.Typer(add_completion=False, help=__doc__)


@app.callback()
def main():
    """Random traffic over functional cards."""


@app.command()
def operations(count: Annotated[int, typer.Option(help="How many.", min=1)] = 100_000,
               seed: Annotated[int, typer.Option(help="Random by default.", show_default=False)] = None,
               qps: Annotated[int, typer.Option(help="QP pairs.", min=2)] = 64,
               longest: Annotated[int, typer.Option(help="Bytes of the longest message.", min=0)] = 1 << 20):
    """Operations of all kinds in both directions, with losses; ends with an error if anything is not as it must be."""
    seed = drawn_seed() if seed is None else seed
    print(f"seed {seed}; run it again: python -m weft.tb.software operations --count {count} --seed {seed} "
          f"--qps {qps} --longest {longest}", flush=True)
    told = [0]

    def tell(posted):
        if posted - told[0] >= 1_000:
            told[0] = posted
            print(posted, flush=True)

    traffic, links = functional_traffic(seed, qps=qps, longest=longest)
    counts = traffic.run(count, tell)
    traffic.close()
    for name, number in sorted(counts.items()):
        print(f"{name:24}{number:14}")
    for name, link in zip(("lost there", "lost back"), links, strict=True):
        print(f"{name:24}{sum(link.lost.values()):14}")


if __name__ == "__main__":
    app()
