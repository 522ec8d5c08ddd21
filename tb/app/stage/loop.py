"""Programs on cards in Python: functional and timed cards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.model.card.host import TimedDevice
from weft.model.functional.host import FunctionalDevice
from weft.model.link import LinkConfig
from weft.tb.app.stage.host import Program, perform, raise_first
from weft.tb.app.stage.stage import Stage
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.loop_pair import complete
from weft.tb.sim.pair.settings import context_config

DEVICE_TYPES = {"functional": FunctionalDevice, "model": TimedDevice}


def play_loop(stage: Stage, programs: Sequence[Program], arguments: dict[str, Any], progress: Path | None,
              backend: str) -> list[Any]:
    """Play programs as :func:`weft.tb.app.stage.stage.play` does."""
    pair = make_pair(context_config(stage.rtt_us), seed=stage.seed, preset=stage.preset,
                     device_type=DEVICE_TYPES[backend],
                     forward=LinkConfig(delay_ns=round(stage.rtt_us * 500), loss=stage.loss))
    try:
        hosts, results = complete(perform(pair, programs, arguments,
                                          lambda *numbers: report_progress(progress, *numbers), stage.rtt_us))
        raise_first(hosts)
    finally:
        for context in pair.contexts:
            context.close()
    return results
