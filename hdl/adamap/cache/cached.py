"""Nodes on the card: block numbers and their lookup in the extents, cached nodes, ports of the head cache."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.layouts import NODE
from ...part.logic import encoded, lowest
from ...part.select import OneOf

COUNT_WIDTH = 9         # of the holes of one node
ENCODING_WIDTH = 2      # of the encodings there are


class CachedNode(data.Struct):
    """Which holes a node has; of a BITMAP the body loses those that are filled."""

    encoding: ENCODING_WIDTH
    body: abi.NODE_BODY_BITS


# From where the offsets of a node's holes count, and how they are told.
NODE_BASE = data.StructLayout({"base_psn": 32, "encoding": ENCODING_WIDTH})


# Whose header it is, and which RSN it has.
WHOSE = data.StructLayout({"qpn": 24, "generation": 8, "rsn": 24})
# What it does to the head of its list. A header passes over a node that ends before `passed_rsn`, which is behind the
# header's own RSN by less than 2^23. Otherwise it is an order to retire the head that has this RSN, or any.
REACH = data.StructLayout({"passed_rsn": 24, "is_header": 1, "any_head": 1})


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


def match_port(params):
    """The matcher's side, as the matcher sees it.

    ``look_en`` takes ``qpn``, ``generation``, ``rsn`` and ``reach``. From the next cycle to that of the next
    ``look_en`` the port shows of the entries as they then are: ``hit``, ``index`` of the node with that RSN, ``next``
    (it follows the list's head), and ``head``, ``head_index`` of the list's first node, with ``behind`` and ``passed``
    of :class:`~weft.hdl.adamap.cache.head_cache.Comparison` (both 0 without one); a cycle later ``head_rsn``, where
    that node begins, two cycles later ``full``: it has ``depth`` nodes or more. ``ripening``: a head has no open holes.
    ``ripe`` shows it two cycles later, unless a flush, or what comes behind it changes meanwhile.
    ``retire_head`` and ``retire_ripe`` take the one or the other out of its list, one per cycle; the first not while
    the list ``settles``: its head left in the cycle before, and ``next`` is 0.

    ``node`` and ``pending`` come one cycle after ``read_en`` and stay; they lack the marks of that cycle and the next.
    ``read_node`` and ``read_base`` are what was fetched into ``read_index``, at once. ``mark_bitmap``: what is marked,
    if anything, is a BITMAP; known early, and no node is filled in then.
    """
    index, record = index_width(params), cached_record(params)
    return wiring.Signature({
        "look_en": Out(1), "qpn": Out(24), "generation": Out(8), "rsn": Out(24), "reach": Out(REACH),
        "hit": In(1), "index": In(index), "next": In(1),
        "head": In(1), "head_index": In(index), "head_rsn": In(24), "behind": In(1), "passed": In(1),
        "settles": In(1),
        "depth": Out(range(params.prefetch_depth_max + 1)), "full": In(1),
        "ripening": In(1), "ripe": In(1), "ripe_index": In(index),
        "retire_head": Out(1), "retire_ripe": Out(1), "flush_en": Out(1), "flush_qpn": Out(24),
        "read_en": Out(1), "read_index": Out(index), "read_node": In(record), "read_base": In(NODE_BASE),
        "node": In(CachedNode), "pending": In(Pending),
        "mark_en": Out(1), "mark_index": Out(index), "mark_bitmap": Out(1), "mark": Out(Pending),
    })


def retire_port(params):
    """The side of the retirements, as they see it: ``read_node`` comes at once, ``pending`` and ``block`` one cycle
    after ``read_en``."""
    return wiring.Signature({
        "read_en": Out(1), "read_index": Out(index_width(params)), "read_node": In(cached_record(params)),
        "pending": In(Pending), "block": In(params.block_bits),
    })


def fill_port(params):
    """The prefetcher's side, as the prefetcher sees it.

    ``free``/``free_index``, a cycle late, name an unused entry, but none in the cycle after ``reserve_en``, which takes
    it for ``fill_node``; ``free_count``, two cycles late, how many there are. ``fill_en``, only while ``fill_ready``,
    turns a reserved entry into a valid one, with that node; ``release_en`` gives one back; a valid one only if it is
    at ``peek_index``, too, and was in the cycle before. ``spare``/``spare_index``, a cycle late: an untouched node
    with which a list ends that does not begin with it. ``peek`` shows a node, ``peek_valid`` and ``peek_touched``
    what its tag has, ``peek_last`` whether no cached node follows it, ``peek_block`` its block a cycle later.

    ``qpn`` is the list that is spoken of. ``cached`` is the number of its nodes, of three cycles ago, ``none`` whether
    there was none two cycles ago. ``follows`` tells
    whether ``fill_node`` goes on where it ended in the cycle before, once ``qpn`` has stood for two cycles, without a
    fill and without a valid node that was given back; the next fill comes when that is known.
    """
    index = index_width(params)
    count = range(params.cache_entries + 1)
    return wiring.Signature({
        "free": In(1), "free_index": In(index), "free_count": In(count), "reserve_en": Out(1),
        "spare": In(1), "spare_index": In(index),
        "fill_en": Out(1), "fill_ready": In(1), "fill_index": Out(index), "fill_node": Out(NODE),
        "fill_block": Out(params.block_bits), "follows": In(1),
        "release_en": Out(1), "release_index": Out(index),
        "peek_index": Out(index), "peek": In(cached_record(params)), "peek_valid": In(1), "peek_touched": In(1),
        "peek_last": In(1), "peek_block": In(params.block_bits),
        "qpn": Out(24), "cached": In(count), "none": In(1),
    })


def says(params):
    """Bits for each entry, see :class:`~weft.hdl.adamap.cache.head_cache.Tags`."""
    return wiring.Signature({name: Out(params.cache_entries) for name in (
        "own", "inside", "behind", "passed", "touched", "done", "flushed", "listed")})


def dead(params: CardParams):
    """Stands in the place of a block number: the list was given up, or there is none."""
    return (1 << params.block_bits) - 1


def stray(params: CardParams):
    """Stands in the place of a block number: the pointer led outside the extents."""
    return dead(params) - 1


def extent_member(params: CardParams):
    """Shape of how many blocks an extent has; there are no numbers for more."""
    return params.extent_blocks_log2 + 1


def held(params: CardParams, lines):
    """How many blocks of an extent of so many lines have numbers."""
    most = params.extent_blocks_log2
    return Mux(lines[most:].any(), 1 << most, lines[:most])


def split(params: CardParams, block):
    """(extent, offset in it) of a block number."""
    return block[params.extent_blocks_log2:], block[:params.extent_blocks_log2]


def in_extent(params: CardParams, values, extent):
    """The value of an extent."""
    values = [Value.cast(value) for value in values]
    return Cat(values).word_select(extent, len(values[0])) if params.knit_extents > 1 else values[0]


def line_of(params: CardParams, bases, block):
    """Physical address divided by 64 of a block; ``bases`` are those of the extents."""
    extent, offset = split(params, block)
    return (in_extent(params, bases, extent) + offset)[:58]


class Pointed(wiring.Component):
    """Looks a line up in the extents. One per cycle, latency 3.

    Where extents overlap, the last one counts. A line in none is that of a stray block.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    extent_base, extent_lines : arrays of In
        Where blocks may lie; ``lines`` 0: nowhere. A change counts a cycle later.
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
            end = Signal(59, name=f"end{k}")        # two comparisons beside each other, none of what is subtracted
            m.d.sync += [end.eq(base + lines), inside[k].eq((self.line >= base) & (self.line < end))]
        offset = (self.line - base)[:size_log2]     # in the last one
        m.d.sync += [line.eq(self.line), later.eq(line), last.eq(Cat(reversed(lowest(m, reversed(inside), "last")))),
                     beyond.eq(Cat(offset[1:].all(), beyond[0] & inside[n - 1]))]

        m.submodules.base = base = OneOf(size_log2, n)
        number = Signal(p.block_bits)
        m.d.comb += [base.chosen.eq(last), number.eq(Cat((later - base.o)[:size_log2], encoded(last))),
                     *[value.eq(each) for value, each in zip(base.values, self.extent_base, strict=True)]]
        m.d.sync += self.o.eq(Mux(last.any() & ~beyond[1], number, strayed))
        return m
