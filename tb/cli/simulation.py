"""``weft sim``: runs the main job."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.settings import BadSetting, Setting
from weft.tb.app.job.job_settings import JobSettings
from weft.tb.cli.options import refuse, refuse_unknown


def sim(
    settings: JobSettings,
    view: Annotated[bool, Setting("Open the waves in GTKWave afterwards.")] = False,
    verbose: Annotated[bool, Setting("Print the whole report.", names=("-v", "--verbose"))] = False,
):
    """Send a file over a lossy link between two cards, simulated RTL or timing model, and print a report.

    WAVES=1 in the environment records waves, too.
    """
    if settings.file:
        _check_size(settings)
    from weft.tb.app.job.run import run
    from weft.tb.sim.flow.simulate import waves_wanted
    try:
        settings = replace(settings, waves=settings.waves or view or waves_wanted())
    except ValueError as error:
        refuse(str(error))
    refuse_unknown(settings)
    raise typer.Exit(run(settings, view=view, verbose=verbose))


def _check_size(settings):
    """Check that the page table of the card can map the whole file."""
    size, most = Path(settings.file).stat().st_size, preset(settings.preset).ptes * abi.PAGE_4K
    if size > most:
        raise BadSetting("file", settings.file, f"it has {size:,} bytes, and a card of preset {settings.preset!r} maps "
                                                f"at most {most:,}")
