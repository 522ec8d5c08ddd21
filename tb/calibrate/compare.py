"""How far model and gateware are apart in a scenario."""

from dataclasses import dataclass

from weft.model.card.timing import CYCLE_NS


@dataclass(frozen=True)
class Comparison:
    """A scenario with both results.

    Attributes
    ----------
    scenario : Scenario
    gateware, model : dict
        As :func:`~weft.tb.calibrate.result.result` has them.
    """

    scenario: object
    gateware: dict
    model: dict

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
        return self.gateware["problems"] + self.model["problems"]

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
