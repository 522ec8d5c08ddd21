"""Cached nodes: block numbers and their lookup in the extents, record layouts, ports of the head cache."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.layouts import NODE
from ...part.logic import encode_one_hot, lowest_one_hot
from ...part.select import OneHotMux

COUNT_WIDTH = 9         # of the number of holes of one node
ENCODING_WIDTH = 2      # of the encodings there are


class CachedNode(data.Struct):
    """Holes of a node; those that are filled are cleared in the body of a BITMAP."""

    encoding: ENCODING_WIDTH
    body: abi.NODE_BODY_BITS


# Base and encoding of the offsets of a node's holes.
NODE_BASE = data.StructLayout({"base_psn": 32, "encoding": ENCODING_WIDTH})


# QP of a header, and its RSN.
HEADER_KEY = data.StructLayout({"qpn": 24, "generation": 8, "rsn": 24})
# Effect of a lookup on the head of its list. A header passes over a node that ends before `passed_rsn`, which is ahead
# of the header's own RSN by less than 2^23. Otherwise the lookup is an order to retire the head that has this RSN, or
# any.
REACH = data.StructLayout({"passed_rsn": 24, "is_header": 1, "any_head": 1})


class Pending(data.Struct):
    """Open holes of a node, and their number.

    ``open`` is as in a RETIRE report: one bit per hole of a LIST or RUNS node; the remaining body of a BITMAP.
    """

    open: abi.NODE_BODY_BITS
    left: COUNT_WIDTH


def cached_tag(params):
    """Return the layout of a tag.

    ``touched``: a hole of the node was filled; ``done``: all were.
    """
    return data.StructLayout({
        "touched": 1, "done": 1,
        "qpn": params.qpn_width, "generation": 8, "rsn": 24, "count": COUNT_WIDTH,
    })


def cached_record(params):
    """Return the layout of the fields that are read of one entry at a time."""
    return data.StructLayout({"qpn": params.qpn_width, "generation": 8, "rsn": 32, "count": COUNT_WIDTH})


def index_width(params):
    """Return the number of bits of an entry's index."""
    return params.cache_entries.bit_length() - 1 or 1


def match_port(params):
    """Return the matcher's port, seen from the matcher.

    ``look_en`` takes ``qpn``, ``generation``, ``rsn`` and ``reach``. From the next cycle to that of the next
    ``look_en`` the port shows the current state of the entries: ``hit``, ``index`` of the node with that RSN, ``next``
    (it follows the list's head), and ``head``, ``head_index`` of the list's first node, with ``before_head`` and
    ``passed`` of :class:`~weft.hdl.adamap.cache.head_cache.TagComparator` (both 0 without one); a cycle later
    ``head_rsn``, the first RSN of that node, two cycles later ``full``: the list has ``depth`` nodes or more.
    ``ripening``: a head has no open holes. ``ripe`` shows it two cycles later, unless there is a flush, or its
    successor changes, in between. ``retire_head`` and ``retire_ripe`` remove the one or the other from its list, one
    per cycle; the first not while the list ``settles``: its head left in the cycle before, and ``next`` is 0.

    ``node`` and ``pending`` come one cycle after ``read_en`` and are held; they lack the marks of that cycle and the
    next. ``read_node`` and ``read_base`` are those of ``read_index``, combinationally. ``mark_bitmap``: a mark, if
    there is one, is to a BITMAP; known early, and no node is filled in that cycle.
    """
    index, record = index_width(params), cached_record(params)
    return wiring.Signature({
        "look_en": Out(1), "qpn": Out(24), "generation": Out(8), "rsn": Out(24), "reach": Out(REACH),
        "hit": In(1), "index": In(index), "next": In(1),
        "head": In(1), "head_index": In(index), "head_rsn": In(24), "before_head": In(1), "passed": In(1),
        "settles": In(1),
        "depth": Out(range(params.prefetch_depth_max + 1)), "full": In(1),
        "ripening": In(1), "ripe": In(1), "ripe_index": In(index),
        "retire_head": Out(1), "retire_ripe": Out(1), "flush_en": Out(1), "flush_qpn": Out(24),
        "read_en": Out(1), "read_index": Out(index), "read_node": In(record), "read_base": In(NODE_BASE),
        "node": In(CachedNode), "pending": In(Pending),
        "mark_en": Out(1), "mark_index": Out(index), "mark_bitmap": Out(1), "mark": Out(Pending),
    })


def retire_port(params):
    """Return the port of the retirements, seen from them.

    ``read_node`` is combinational, ``pending`` and ``block`` come one cycle after ``read_en``.
    """
    return wiring.Signature({
        "read_en": Out(1), "read_index": Out(index_width(params)), "read_node": In(cached_record(params)),
        "pending": In(Pending), "block": In(params.block_bits),
    })


def fill_port(params):
    """Return the prefetcher's port, seen from the prefetcher.

    ``free``/``free_index``, a cycle late, name an unused entry, but none in the cycle after ``reserve_en``, which
    reserves it for ``fill_node``; ``free_count``, two cycles late, is the number of unused entries. ``fill_en``, only
    while ``fill_ready``, turns a reserved entry into a valid one, with that node; ``release_en`` releases one; a valid
    one only if it is at ``peek_index``, too, and was in the cycle before. ``candidate``/``candidate_index``, a cycle
    late: eviction candidate, an untouched node at the end of a list that is not the list's head. ``peek`` shows a node,
    ``peek_valid`` and ``peek_touched`` its tag bits, ``peek_last`` whether no cached node follows it, ``peek_block``
    its block a cycle later.

    ``qpn`` selects a list. ``cached`` is the number of its nodes, of three cycles ago, ``none`` whether there was none
    two cycles ago. ``follows``: ``fill_node`` begins where the list ended in the cycle before; valid once ``qpn`` has
    been stable for two cycles without a fill and without the release of a valid node; the next fill comes after that.
    """
    index = index_width(params)
    count = range(params.cache_entries + 1)
    return wiring.Signature({
        "free": In(1), "free_index": In(index), "free_count": In(count), "reserve_en": Out(1),
        "candidate": In(1), "candidate_index": In(index),
        "fill_en": Out(1), "fill_ready": In(1), "fill_index": Out(index), "fill_node": Out(NODE),
        "fill_block": Out(params.block_bits), "follows": In(1),
        "release_en": Out(1), "release_index": Out(index),
        "peek_index": Out(index), "peek": In(cached_record(params)), "peek_valid": In(1), "peek_touched": In(1),
        "peek_last": In(1), "peek_block": In(params.block_bits),
        "qpn": Out(24), "cached": In(count), "none": In(1),
    })


def tag_match_layout(params):
    """Return the signature of tag bits for each entry, see :class:`~weft.hdl.adamap.cache.head_cache.TagArray`."""
    return wiring.Signature({name: Out(params.cache_entries) for name in (
        "own", "inside", "before_head", "passed", "touched", "done", "flushed", "listed")})


def null_block(params: CardParams):
    """Return the null block number: the list was abandoned, or there is none."""
    return (1 << params.block_bits) - 1


def stray(params: CardParams):
    """Return the block number of a pointer outside the extents."""
    return null_block(params) - 1


def extent_member(params: CardParams):
    """Return the shape of the number of blocks of an extent; larger numbers have no representation."""
    return params.extent_blocks_log2 + 1


def held(params: CardParams, lines):
    """Return the number of blocks of an extent of ``lines`` lines that have block numbers."""
    most = params.extent_blocks_log2
    return Mux(lines[most:].any(), 1 << most, lines[:most])


def split(params: CardParams, block):
    """Return (extent, offset in it) of a block number."""
    return block[params.extent_blocks_log2:], block[:params.extent_blocks_log2]


def in_extent(params: CardParams, values, extent):
    """Return the value of an extent."""
    values = [Value.cast(value) for value in values]
    return Cat(values).word_select(extent, len(values[0])) if params.knit_extents > 1 else values[0]


def line_of(params: CardParams, bases, block):
    """Return the physical address of a block divided by 64; ``bases`` are those of the extents."""
    extent, offset = split(params, block)
    return (in_extent(params, bases, extent) + offset)[:58]


class ExtentLookup(wiring.Component):
    """Looks a line up in the extents. One per cycle, latency 3.

    Where extents overlap, the last one is used. The result for a line in none is :func:`stray`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    extent_base, extent_lines : arrays of In
        Extents; ``lines`` 0: empty. A change takes effect a cycle later.
    line : In(58)
    o : Out(params.block_bits)
        Three cycles later.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "extent_base": In(58).array(params.knit_extents),
            "extent_lines": In(extent_member(params)).array(params.knit_extents),
            "line": In(58), "o": Out(params.block_bits),
        })

    def elaborate(self, platform):
        m = Module()
        p, n = self.params, self.params.knit_extents
        size_log2, strayed = p.extent_blocks_log2, stray(p)
        inside, last, beyond = Signal(n), Signal(n), Signal(2)      # `beyond`: the last two numbers are no blocks
        line, later = Signal(size_log2), Signal(size_log2)
        for k, (base, lines) in enumerate(zip(self.extent_base, self.extent_lines, strict=True)):
            end = Signal(59, name=f"end{k}")        # two parallel comparisons instead of one of a difference
            m.d.sync += [end.eq(base + lines), inside[k].eq((self.line >= base) & (self.line < end))]
        offset = (self.line - base)[:size_log2]     # in the last extent
        m.d.sync += [line.eq(self.line), later.eq(line),
                     last.eq(Cat(reversed(lowest_one_hot(m, reversed(inside), "last")))),
                     beyond.eq(Cat(offset[1:].all(), beyond[0] & inside[n - 1]))]

        m.submodules.base = base = OneHotMux(size_log2, n)
        number = Signal(p.block_bits)
        m.d.comb += [base.chosen.eq(last), number.eq(Cat((later - base.o)[:size_log2], encode_one_hot(last))),
                     *[value.eq(each) for value, each in zip(base.values, self.extent_base, strict=True)]]
        m.d.sync += self.o.eq(Mux(last.any() & ~beyond[1], number, strayed))
        return m
