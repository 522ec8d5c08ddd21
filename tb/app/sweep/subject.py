"""Kinds of points of a sweep: wide-area experiments, flows over a fabric, or two cards."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.model.fabric.experiment import FabricExperiment
from weft.model.fabric.result import FabricResult
from weft.model.fabric.result import Unmeasured as UnmeasuredFabric
from weft.model.fabric.result import measure as measure_fabric
from weft.model.settings import BadSettings, Field, fields
from weft.model.wan.experiment import Experiment
from weft.model.wan.result import Result, Unmeasured
from weft.model.wan.result import measure as measure_experiment

from . import cards

Row = dict[str, Any]    # settings and results of a point


@dataclass(frozen=True)
class Subject:
    """Kind of points."""

    name: str                       # in --of
    article: str                    # noun for one point
    settings: type                  # dataclass; a ValueError of one sentence for impossible ones
    results: type                   # dataclass
    measure: Callable[[Any], Any]   # returns the results of a point, or raises one of `fails` with a sentence
    fails: tuple[type[Exception], ...]
    shown: tuple[str, ...]          # results in the table on the terminal
    picture: dict[str, str]         # default axes and lines

    @property
    def fields(self) -> dict[str, Field]:
        """``{setting: Field}``."""
        return fields(self.settings)

    @property
    def outcomes(self) -> dict[str, dataclasses.Field[Any]]:
        """``{result: its dataclass field}``."""
        return {field.name: field for field in dataclasses.fields(self.results)}


WAN = Subject("wan", "an experiment", Experiment, Result, measure_experiment, (Unmeasured, MemoryError),
              ("goodput", "retransmissions", "spurious", "host_bytes", "card_bytes"),
              {"x": "loss", "y": "goodput", "line": "scheme"})
CARDS = Subject("cards", "a run of two cards", cards.CardPoint, cards.CardResult, cards.measure, (cards.Unfinished,),
                ("goodput_gbps", "cycles", "retransmissions", "cache_misses", "stall_cycles"),
                {"x": "loss", "y": "goodput_gbps", "line": "backend"})
FABRIC = Subject("fabric", "an experiment over a fabric", FabricExperiment, FabricResult, measure_fabric,
                 (UnmeasuredFabric, BadSettings, MemoryError),
                 ("goodput", "jain", "startup_rtts", "queue_p99_kib", "queue_rtts", "dropped", "time_outs"),
                 {"x": "flows", "y": "goodput", "line": "algorithm"})
SUBJECTS = {subject.name: subject for subject in (WAN, CARDS, FABRIC)}
