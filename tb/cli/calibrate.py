"""``weft calibrate``: the model beside the gateware."""

from typing import Annotated

import typer

from weft.tb.cli.failures import needs


def calibrate(
    only: Annotated[list[str] | None, typer.Option(help="Only scenarios whose names begin so; may be repeated.",
                                                   metavar="NAME")] = None,
):
    """The same traffic and losses on the gateware and in the model: time, stalls and sequences side by side."""
    with needs("sim"):
        from weft.tb.verify.calibrate.run import run
        raise typer.Exit(run(only or []))
