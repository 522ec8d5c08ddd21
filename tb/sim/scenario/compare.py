"""How far model and gateware are apart in a scenario."""

from dataclasses import dataclass

from weft.model.card.timing import CYCLE_NS
from weft.tb.sim.flow.build import BUILD_ROOT

REPORT = BUILD_ROOT / "reports/calibration.json"    # a list of what Comparison.as_dict says
COMMAND = "weft calibrate"
TIME_MAX, STALL_MAX = 0.05, 0.02
ALIKE = ("tx_packets", "tx_retransmissions", "rx_packets", "holes")


@dataclass(frozen=True)
class Comparison:
    """A scenario with the results of all that ran it.

    Attributes
    ----------
    scenario : Scenario
    gateware, model : dict
        As :func:`~weft.tb.sim.scenario.result.result` has them.
    functional : dict or None
        Of functional cards, which take no time: what was sent, lost and received has to be the same.
    """

    scenario: object
    gateware: dict
    model: dict
    functional: dict | None = None

    @property
    def time_error(self):
        """Of the time of completion, relative, signed."""
        return self.model["cycles"] / self.gateware["cycles"] - 1

    @property
    def stall_error(self):
        """Of the cycles in which retransmissions waited for nodes, relative to the gateware's, signed; where that has
        less than one read of host memory takes, relative to that, since a wait is part of such a read."""
        found, expected = self.model["stall_cycles"], self.gateware["stall_cycles"]
        return (found - expected) / max(expected, self.scenario.latency_ns / CYCLE_NS)

    @property
    def mismatches(self):
        """Names of the sequences that differ."""
        ours, theirs = self.model["sequences"], self.gateware["sequences"]
        return sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))

    @property
    def problems(self):
        """Sentences: what went wrong on one of them, and counters that differ between all."""
        ran = {"the gateware": self.gateware, "the model": self.model}
        if self.functional:
            ran["functional cards"] = self.functional
        found = [problem for run in ran.values() for problem in run["problems"]]
        for side in self.gateware["counters"]:
            for name in ALIKE:
                values = {who: run["counters"][side][name] for who, run in ran.items()}
                if len(set(values.values())) > 1:
                    found.append(f"{name} of {side}: " + ", ".join(f"{n} on {who}" for who, n in values.items()))
        return found

    def as_dict(self):
        """What the report keeps."""
        return {
            "name": self.scenario.name, "judges": self.scenario.judges, "scenario": self.scenario.as_dict(),
            "cycles": {"gateware": self.gateware["cycles"], "model": self.model["cycles"]},
            "stall_cycles": {"gateware": self.gateware["stall_cycles"], "model": self.model["stall_cycles"]},
            "time_error": self.time_error, "stall_error": self.stall_error, "mismatches": self.mismatches,
            "problems": self.problems,
        }


def worst(comparisons):
    """The figures of the scenarios that judge: ``(scenarios, time error, stall error, mismatching sequences)``."""
    judging = [found for found in comparisons if found.scenario.judges]
    return (len(judging), max((abs(found.time_error) for found in judging), default=0.0),
            max((abs(found.stall_error) for found in judging), default=0.0),
            sum(len(found.mismatches) for found in judging))
