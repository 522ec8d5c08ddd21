"""Congestion control algorithms that run on cards."""

from .algorithms import ALGORITHMS

UNMARKED = ("dcqcn",)      # need ECN marks, but cards send packets as Not-ECT, which switches do not mark
ON_CARDS = tuple(name for name in ALGORITHMS if name not in UNMARKED)


def why_not(name: str) -> str | None:
    """Return the reason why cards do not have an algorithm, as the second half of a sentence, or None."""
    choices = ", ".join(ON_CARDS)
    if name in UNMARKED:
        return f"it needs ECN marks, and cards send Not-ECT, which no switch marks; choose one of {choices}"
    return None if name in ON_CARDS else f"choose one of {choices}"
