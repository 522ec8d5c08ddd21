"""A node being built: what is kept of it, and which encodings can hold it."""

from amaranth.hdl import Const, Mux
from amaranth.lib import data

from ..contract import abi
from ..part.logic import above
from .cached import ENCODING_WIDTH

SPAN = 1 << abi.OFFSET_BITS
RUN_BITS = 2 * abi.OFFSET_BITS
LIST_LOW = abi.LIST_HOLES.bit_length()      # bits of the number of an entry of a LIST
RUN_LENGTH_BITS = abi.RUNS_HOLES.bit_length()       # that are ever set of the length of a run of RUNS


class Counts(data.Struct):
    """What tells which encodings can hold a draft."""

    count: range(abi.NODE_HOLES_MAX + 1)
    end: range(SPAN + abi.RUNS_HOLES + 1)   # offset behind the last hole
    runs: range(abi.RUNS_MAX + 2)           # stays at one more than the encoding RUNS can hold


class Draft(data.Struct):
    """A node being built, in the first encoding that can hold it; the counters say which one that is."""

    base: 32
    counts: Counts
    body: abi.NODE_BODY_BITS


def fits(params, counts):
    """By name of the encoding: whether it can hold a draft."""
    can = {
        "LIST": ~above(counts.count, abi.LIST_HOLES) & ~above(counts.end, SPAN),
        "RUNS": ~above(counts.count, abi.RUNS_HOLES) & ~above(counts.runs, abi.RUNS_MAX),
        "BITMAP": Const(1, 1),
    }
    return {name: can[name] if name in params.node_encodings else Const(0, 1) for name in can}


def encoding_of(params, counts):
    """The first encoding that can hold a draft, if any can."""
    can, found = fits(params, counts), None
    for name in reversed(params.node_encodings):
        code = Const(abi.Encoding[name].value, ENCODING_WIDTH)
        found = code if found is None else Mux(can[name], code, found)
    return found
