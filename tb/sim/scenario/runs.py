"""Runs of a scenario: on functional cards and in the model at once, on the gateware once for each version of what it
depends on."""

import hashlib
import json
from pathlib import Path

from weft.hdl.contract.params import preset
from weft.model.card.host import TimedDevice, WatchedMemory
from weft.model.functional.host import FunctionalDevice
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.sources import sources
from weft.tb.sim.pair.loop_pair import LoopPair, complete
from weft.tb.sim.pair.two_cards import run_cards, two_cards_text
from weft.tb.sim.scenario.play import play

KEPT = BUILD_ROOT / "calibration"
CASES = Path(__file__).with_name("scenario_cases.py")
TIMEOUT_S = 3600
# What a run on the gateware depends on besides the gateware and the scenario.
DEPENDS_ON = ("driver", "model/impairments.py", "model/link.py", "tb/sim")


class _Functional(FunctionalDevice):
    """A host with a functional card, whose writes can be watched; it has no ``host`` that takes time."""

    memory_type = WatchedMemory

    def __init__(self, loop, *, host, **options):
        super().__init__(loop, **options)
        self.card.memory = self.memory.dma()


def run_functional(scenario):
    """The result of a scenario on functional cards; its cycles say nothing."""
    return run_model(scenario, _Functional)


def run_model(scenario, device_type=TimedDevice):
    """The result of a scenario in the model."""
    a_to_b, b_to_a = scenario.links()
    pair = LoopPair(device_type, scenario.context_config(), forward=a_to_b, backward=b_to_a, seed=scenario.seed,
                    preset="test", host=scenario.host())
    return json.loads(json.dumps(complete(play(pair, scenario))))


class Gateware:
    """Runs of scenarios on the gateware; what was run is kept by content."""

    def __init__(self):
        gateware = hashlib.sha256(two_cards_text(preset("test")).encode()).hexdigest()
        self._version = gateware + sources(*DEPENDS_ON, without=("test_", "timed_"))

    def _file(self, scenario):
        settings = {name: value for name, value in scenario.as_dict().items() if name not in ("name", "judges")}
        return KEPT / (hashlib.sha256((json.dumps(settings) + self._version).encode()).hexdigest()[:24] + ".json")

    def kept(self, scenario):
        """The result of an earlier run, or None; one that cannot be read counts as none."""
        try:
            return json.loads(self._file(scenario).read_text())
        except (OSError, ValueError):
            return None

    def run(self, scenario):
        """The result, from an earlier run if there was one."""
        found = self.kept(scenario)
        if found is None:
            found = run_cards(preset("test"), CASES, scenario.as_dict(), seed=scenario.seed, timeout_s=TIMEOUT_S)
            KEPT.mkdir(parents=True, exist_ok=True)
            fresh = self._file(scenario).with_suffix(".fresh")
            fresh.write_text(json.dumps(found))
            fresh.replace(self._file(scenario))
        return found
