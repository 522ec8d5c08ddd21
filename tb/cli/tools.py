"""``weft devinfo``, ``counters``: attributes and counters of a card."""

from pathlib import Path
from typing import Annotated

from weft.model.settings import PRESET, Setting, readable_file
from weft.tb.app.stage.stage import BACKEND, Stage, play
from weft.tb.cli.options import refuse


def devinfo(
    verbose: Annotated[bool, Setting("Everything there is to know.", names=("-v", "--verbose"))] = False,
    backend: Annotated[str, BACKEND] = "functional",
    preset: Annotated[str, PRESET] = "test",
):
    """Show a card and its port in the form of ibv_devinfo."""
    from weft.tb.app.device import devinfo as tool
    print(tool.text(play((tool.query, tool.rest), backend=backend, stage=Stage(preset=preset))[0], verbose=verbose))


def counters(
    stage: Stage,
    report: Annotated[Path | None, Setting("Show the counters of the run that left this report; weft sim leaves "
                                           "sim_build/reports/sim.json.", read=readable_file, metavar="PATH")] = None,
    messages: Annotated[int, Setting("Without a report: writes, sends, reads and atomics of a short run, each.",
                                     least=1, most=1000)] = 20,
    backend: Annotated[str, BACKEND] = "functional",
):
    """Show counters of both cards after a run, with the names of rdma statistic and of ethtool -S."""
    from weft.tb.app.device import counters as tool
    from weft.tb.app.device import short_run
    from weft.tb.app.stage.host import PeerFailed, ProgramFailed
    from weft.tb.sim.flow.failure import Failure
    from weft.tb.sim.pair.settings import timeout
    if report is not None:
        try:
            sides = tool.of_report(report)
        except tool.BadReport as error:
            refuse(str(error))
    else:
        try:
            sides = dict(zip("ab", play((short_run.program, short_run.program), backend=backend, stage=stage,
                                        messages=messages, timeout=timeout(stage.rtt_us)), strict=True))
        except (ProgramFailed, PeerFailed) as error:
            raise Failure(str(error)) from None
    for number, side in enumerate(sides):
        print(tool.text(f"weft{number}", sides[side]))
