"""Kinds of points of a sweep: wide-area experiments, or two cards."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from weft.model.settings import fields
from weft.model.wan.experiment import Experiment
from weft.model.wan.result import Result, Unmeasured
from weft.model.wan.result import measure as measure_experiment

from . import cards


@dataclass(frozen=True)
class Subject:
    """Kind of points.

    Attributes
    ----------
    name, article : str
        Name in ``--of``; noun for one point, in words.
    settings, results : type
        Dataclasses of the settings, with a ValueError of one sentence for impossible ones, and of the results.
    measure : callable
        Returns the results of a point. It raises one of ``fails`` with a sentence if there are none.
    fails : tuple of type
    shown : tuple of str
        Results in the table on the terminal.
    picture : dict
        Default axes and lines of the picture.
    """

    name: str
    article: str
    settings: type
    results: type
    measure: Callable
    fails: tuple
    shown: tuple
    picture: dict

    @property
    def fields(self):
        """``{setting: Field}``."""
        return fields(self.settings)

    @property
    def outcomes(self):
        """``{result: its dataclass field}``."""
        return {field.name: field for field in dataclasses.fields(self.results)}


WAN = Subject("wan", "an experiment", Experiment, Result, measure_experiment, (Unmeasured, MemoryError),
              ("goodput", "retransmissions", "spurious", "host_bytes", "card_bytes"),
              {"x": "loss", "y": "goodput", "line": "scheme"})
CARDS = Subject("cards", "a run of two cards", cards.CardPoint, cards.CardResult, cards.measure, (cards.Unfinished,),
                ("goodput_gbps", "cycles", "retransmissions", "cache_misses", "stall_cycles"),
                {"x": "loss", "y": "goodput_gbps", "line": "backend"})
SUBJECTS = {subject.name: subject for subject in (WAN, CARDS)}
