"""What a benchmark is, and all of them by name."""

import importlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A figure.

    Attributes
    ----------
    name, unit : str
        The name is one word, the same in every run.
    value : float
    at_least, at_most : float or None
        The bar. A value on its wrong side fails the benchmark.
    """

    name: str
    unit: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bar(self):
        """The bar in words, empty without one."""
        if self.at_least is not None:
            return f"at least {self.at_least:,.4g}"
        return f"at most {self.at_most:,.4g}" if self.at_most is not None else ""

    @property
    def missed(self):
        return (self.at_least is not None and self.value < self.at_least) or (
            self.at_most is not None and self.value > self.at_most)


@dataclass(frozen=True)
class Benchmark:
    """A function that measures.

    Attributes
    ----------
    about : str
        One sentence.
    module, function : str
        ``function(progress)`` of ``weft.tb.measure.<module>`` returns rows. While it measures it may append JSON lines
        ``{"phase", "done", "total"}`` to the file ``progress``.
    """

    about: str
    module: str
    function: str = "measure"

    def measure(self, progress):
        """The rows."""
        return list(getattr(importlib.import_module(f"weft.tb.measure.{self.module}"), self.function)(progress))


BENCHMARKS = {
    "line-rate": Benchmark("Payload rates of two cards at 100 Gb/s, both directions at once and one alone.",
                           "line_rate"),
    "latency": Benchmark("Latencies of a small write.", "line_rate", "measure_latency"),
    "adamap-match": Benchmark("Interval and latency of matching a retransmission, whatever the list.",
                              "adamap_match"),
    "adamap-stall": Benchmark("How often a retransmission waits for its node, by losses, cache depth and read latency.",
                              "adamap_stall"),
    "adamap-memory": Benchmark("On-card memory of the Adamap room, from the elaborated design.", "adamap_memory"),
    "pool": Benchmark("Goodput with too few knitting blocks, on functional cards.", "pool"),
    "lives": Benchmark("Lives of nodes: blocks that leak and stale accepts, functional and in the RTL.",
                       "lives"),
    "simulation": Benchmark("How fast simulation is.", "simulation"),
}
