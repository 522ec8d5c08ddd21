"""``python -m weft.tb.cards operations``: the traffic over real cards that is too long for the tests."""

from typing import Annotated

import typer

from weft.tb.cards.operations import run_operations

app = typer.Typer(add_completion=False, help=__doc__)


@app.callback()
def main():
    """Random traffic over two real cards."""


@app.command()
def operations(count: Annotated[int, typer.Option(help="How many.", min=1)] = 1_000,
               seed: Annotated[int, typer.Option(help="Random by default.", show_default=False)] = None):
    """Operations of all kinds in both directions, with losses; ends with an error if anything is not as it must be."""
    run_operations(count, seed=seed, timeout_s=7_200)
    print(f"{count} operations, all as they must be")


if __name__ == "__main__":
    app()
