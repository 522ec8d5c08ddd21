"""A node as the head cache has it."""

from amaranth.lib import data

from ..contract import abi

COUNT_WIDTH = 9         # of the holes of one node
ENCODING_WIDTH = 2      # of the encodings there are


class CachedNode(data.Struct):
    """Which holes a node has; of a BITMAP the body loses those that are filled."""

    encoding: ENCODING_WIDTH
    body: abi.NODE_BODY_BITS


# From where the offsets of a node's holes count, and how they are told.
NODE_BASE = data.StructLayout({"base_psn": 32, "encoding": ENCODING_WIDTH})


class Pending(data.Struct):
    """Holes of a node that were not filled yet, and how many they are.

    ``open`` is as in a RETIRE report: one bit per hole of a LIST or RUNS node, of a BITMAP what is left of the body.
    """

    open: abi.NODE_BODY_BITS
    left: COUNT_WIDTH


def cached_tag(params):
    """What the lookup compares of an entry; ``touched``: a hole of it was filled. ``done``: all were."""
    return data.StructLayout({
        "touched": 1, "done": 1,
        "qpn": params.qpn_width, "generation": 8, "rsn": 24, "count": COUNT_WIDTH,
    })


def cached_record(params):
    """What is read of one entry at a time."""
    return data.StructLayout({"qpn": params.qpn_width, "generation": 8, "rsn": 32, "count": COUNT_WIDTH})


def index_width(params):
    """Bits of the number of a cache entry."""
    return params.cache_entries.bit_length() - 1 or 1
