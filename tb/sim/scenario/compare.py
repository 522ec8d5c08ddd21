"""Differences between timing model and gateware in a scenario."""

from dataclasses import dataclass

from weft.model.card.pacer import SLOT_NS
from weft.model.card.timing import CYCLE_NS
from weft.tb.sim.flow.build import BUILD_ROOT

REPORT = BUILD_ROOT / "reports/calibration.json"    # list of the results of Comparison.as_dict
COMMAND = "weft calibrate"
TIME_MAX, STALL_MAX, PACED_MAX = 0.05, 0.02, 0.01
ALIKE = ("tx_packets", "tx_retransmissions", "rx_packets", "holes")


@dataclass(frozen=True)
class Comparison:
    """Scenario with the results of :func:`~weft.tb.sim.scenario.play.play` of all back ends that ran it."""

    scenario: object
    gateware: dict
    model: dict
    functional: dict | None = None      # functional cards take no time: only counters are compared

    @property
    def time_error(self):
        """Return the signed relative error of the completion time."""
        return self.model["cycles"] / self.gateware["cycles"] - 1

    @property
    def stall_error(self):
        """Return the signed relative error of the cycles in which retransmissions waited for nodes.

        The reference is the gateware's value, but at least the time of one read of host memory, since each wait is
        part of such a read.
        """
        found, expected = self.model["stall_cycles"], self.gateware["stall_cycles"]
        return (found - expected) / max(expected, self.scenario.latency_ns / CYCLE_NS)

    @property
    def paced_error(self):
        """Return the largest relative error of a paced QP's time from the end of its first descriptor to the last one.

        The amount of data is the same, so this is the error of the rate, too. One slot of the pacer's wheel does not
        count: the slots of gateware and model begin at different times. The reference is at least the time of one read
        of host memory.
        """
        found, expected = self.model["paced_ns"], self.gateware["paced_ns"]
        if found.keys() != expected.keys():
            return 1.0
        least = self.scenario.latency_ns
        return max((max(abs(found[qp] - ns) - SLOT_NS, 0) / max(ns, least) for qp, ns in expected.items()), default=0.0)

    @property
    def mismatches(self):
        """Return the names of the sequences that differ."""
        ours, theirs = self.model["sequences"], self.gateware["sequences"]
        return sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))

    @property
    def problems(self):
        """Return sentences: the problems of each run, and the counters that differ between runs."""
        ran = {"the gateware": self.gateware, "the model": self.model}
        if self.functional:
            ran["functional cards"] = self.functional
        found = [problem for run in ran.values() for problem in run["problems"]]
        for side in self.gateware["counters"]:
            for name in ALIKE:
                values = {owner: run["counters"][side][name] for owner, run in ran.items()}
                if len(set(values.values())) > 1:
                    found.append(f"{name} of {side}: " + ", ".join(f"{n} on {owner}" for owner, n in values.items()))
        return found

    def as_dict(self):
        """Return the entry of the report."""
        return {
            "name": self.scenario.name, "judges": self.scenario.judges, "scenario": self.scenario.as_dict(),
            "cycles": {"gateware": self.gateware["cycles"], "model": self.model["cycles"]},
            "stall_cycles": {"gateware": self.gateware["stall_cycles"], "model": self.model["stall_cycles"]},
            "time_error": self.time_error, "stall_error": self.stall_error, "paced_error": self.paced_error,
            "mismatches": self.mismatches,
            "problems": self.problems,
        }


def worst(comparisons):
    """Return the figures of the judging scenarios.

    They are: scenarios, largest errors of time, stalls and paced rates, sequences that differ.
    """
    judging = [found for found in comparisons if found.scenario.judges]
    return (len(judging), max((abs(found.time_error) for found in judging), default=0.0),
            max((abs(found.stall_error) for found in judging), default=0.0),
            max((found.paced_error for found in judging), default=0.0),
            sum(len(found.mismatches) for found in judging))
