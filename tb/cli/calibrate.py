"""``weft calibrate``: the model beside the gateware."""

from typing import Annotated

import typer

from weft.model.settings import Setting
from weft.tb.cli.failures import needs


def calibrate(
    only: Annotated[list[str] | None, Setting("Only scenarios whose names begin so; may be given several times.",
                                              metavar="NAME")] = None,
):
    """The same traffic and losses on the gateware and in the model: time, stalls and sequences side by side."""
    with needs("sim"):
        from weft.tb.verify.calibrate.run import run
        raise typer.Exit(run(only or []))
