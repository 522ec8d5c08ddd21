"""``weft calibrate``: compares the timing model with the gateware."""

from typing import Annotated

import typer

from weft.model.settings import Setting


def calibrate(
    only: Annotated[list[str] | None, Setting("Only scenarios whose names begin so; may be given several times.",
                                              metavar="NAME")] = None,
):
    """Compare gateware and timing model under the same traffic and losses: time, stalls and sequences."""
    from weft.tb.verify.calibrate.run import run
    raise typer.Exit(run(only or []))
