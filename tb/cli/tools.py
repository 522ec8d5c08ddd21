"""``weft devinfo``, ``counters``: what a card is, and what it counted."""

from typing import Annotated

import typer

from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import card_params, choice, number, option, readable_file, refuse
from weft.tb.cli.perf import RTT_US_MAX


def _stage(preset, backend, loss="0", rtt_us="0", seed="1"):
    """A checked stage and the name of its back end."""
    with needs("sim"):
        from weft.tb.app.stage.stage import BACKENDS, Stage
    card_params(preset)
    choice("--backend", backend, BACKENDS)
    return Stage(preset=preset, loss=number("--loss", loss, float, 0, 1),
                 rtt_us=number("--rtt-us", rtt_us, float, 0, RTT_US_MAX),
                 seed=number("--seed", seed, int, 0, 2**31 - 1)), backend


def devinfo(
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Everything there is to know.")] = False,
    backend: Annotated[str, option("functional, model or rtl.", "NAME")] = "functional",
    preset: Annotated[str, option("Size of the card: test, basic or full.", "NAME")] = "test",
):
    """A card and its port, as ibv_devinfo shows them."""
    stage, backend = _stage(preset, backend)
    with needs("sim"):
        from weft.tb.app.device import devinfo as tool
        from weft.tb.app.stage.stage import play
        print(tool.text(play((tool.query, tool.rest), backend=backend, stage=stage)[0], verbose=verbose))


def counters(
    report: Annotated[str | None, option("Of the run that left this report; sim_build/reports/sim.json is weft sim's.",
                                         "PATH")] = None,
    messages: Annotated[str, option("Without a report: writes, sends, reads and atomics of a short run, each so many.",
                                    )] = "20",
    backend: Annotated[str, option("functional, model or rtl.", "NAME")] = "functional",
    loss: Annotated[str, option("Chance of every frame to get lost.")] = "0",
    rtt_us: Annotated[str, option("Round trip time of the link, microseconds.")] = "0",
    preset: Annotated[str, option("Size of both cards: test, basic or full.", "NAME")] = "test",
    seed: Annotated[str, option("Of every random choice.")] = "1",
):
    """What both cards counted in a run, with the names of rdma statistic and of ethtool -S."""
    messages = number("--messages", messages, int, 1, 1000)
    stage, backend = _stage(preset, backend, loss, rtt_us, seed)
    with needs("sim"):
        from weft.tb.app.device import counters as tool
        from weft.tb.app.device import short_run
        from weft.tb.app.stage.host import PeerFailed, ProgramFailed
        from weft.tb.app.stage.stage import play
        from weft.tb.sim.flow.failure import Failure
        from weft.tb.sim.pair.settings import timeout
    if report is not None:
        try:
            sides = tool.of_report(readable_file(report))
        except tool.BadReport as error:
            refuse(str(error))
    else:
        try:
            sides = dict(zip("ab", play((short_run.program, short_run.program), backend=backend, stage=stage,
                                        messages=messages, timeout=timeout(stage.rtt_us)), strict=True))
        except (ProgramFailed, PeerFailed) as error:
            raise Failure(str(error)) from None
    for number_, side in enumerate(sides):
        print(tool.text(f"weft{number_}", sides[side]))
