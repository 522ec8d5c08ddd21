"""Runs of a scenario on functional cards, on the timing model and on the gateware.

Only results of the gateware are cached. A result is valid until a file that it depends on changes.
"""

import hashlib
import json
from pathlib import Path

from weft.hdl.contract.params import preset
from weft.model.card.host import TimedDevice
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.sources import sources
from weft.tb.sim.flow.tools import write_whole
from weft.tb.sim.pair.loop_pair import LoopPair, WatchedDevice, complete
from weft.tb.sim.pair.two_cards import run_cards, two_cards_text
from weft.tb.sim.scenario.play import play

KEPT = BUILD_ROOT / "calibration"
CASES = Path(__file__).with_name("scenario_cases.py")
TIMEOUT_S = 3600
# Dependencies of a gateware run besides the gateware and the scenario.
DEPENDS_ON = ("driver", "model/impairments.py", "model/link.py", "tb/sim")


def run_functional(scenario):
    """Return the result of a scenario on functional cards; its cycles have no meaning."""
    return _run(scenario, WatchedDevice)


def run_model(scenario):
    """Return the result of a scenario in the timing model."""
    return _run(scenario, TimedDevice, host=scenario.host())


def _run(scenario, device_type, **timing):
    a_to_b, b_to_a = scenario.links()
    pair = LoopPair(device_type, scenario.context_config(), forward=a_to_b, backward=b_to_a, seed=scenario.seed,
                    preset="test", **timing)
    return json.loads(json.dumps(complete(play(pair, scenario))))


class Gateware:
    """Runner of scenarios on the gateware, with results cached by content."""

    def __init__(self):
        gateware = hashlib.sha256(two_cards_text(preset("test")).encode()).hexdigest()
        self._version = gateware + sources(*DEPENDS_ON, without=("test_", "timed_"))

    def _file(self, scenario):
        settings = {name: value for name, value in scenario.as_dict().items() if name not in ("name", "judges")}
        return KEPT / (hashlib.sha256((json.dumps(settings) + self._version).encode()).hexdigest()[:24] + ".json")

    def kept(self, scenario):
        """Return the result of an earlier run, or None if there is none or it cannot be read."""
        try:
            return json.loads(self._file(scenario).read_text())
        except (OSError, ValueError):
            return None

    def run(self, scenario):
        """Return the result, from an earlier run if there is one."""
        found = self.kept(scenario)
        if found is None:
            found = run_cards(preset("test"), CASES, scenario.as_dict(), seed=scenario.seed, timeout_s=TIMEOUT_S)
            write_whole(self._file(scenario), json.dumps(found))
        return found
