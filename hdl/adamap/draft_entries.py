"""The entries of a draft's body, one after the other, so that they are put into a body of another encoding."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..part.logic import sums_to
from .cached import COUNT_WIDTH
from .draft import RUN_BITS, RUN_LENGTH_BITS


class DraftEntries(wiring.Component):
    """Entries of a body of LIST or RUNS: the first one two cycles after ``body_en``, then one per cycle.

    Members
    -------
    body, body_en : In(320), In(1)
    of_list : In(1)
        The body is a LIST; it counts from the cycle after ``body_en`` on.
    offset, end : Out(16), Out(9)
        Of an entry; ``end`` is that behind it, if it is one of a BITMAP.
    merge : Out(1)
        The entry begins where the one before it ended, of a LIST; not to be looked at with the first one.
    """

    def __init__(self):
        super().__init__({
            "body": In(abi.NODE_BODY_BITS), "body_en": In(1), "of_list": In(1),
            "offset": Out(abi.OFFSET_BITS), "end": Out(COUNT_WIDTH), "merge": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        left = Signal(abi.NODE_BODY_BITS)       # from the next one on
        offset, length = left[:abi.OFFSET_BITS], left[abi.OFFSET_BITS:][:RUN_LENGTH_BITS]
        m.d.sync += [
            left.eq(Mux(self.body_en, self.body, Mux(self.of_list, left >> abi.OFFSET_BITS, left >> RUN_BITS))),
            self.offset.eq(offset), self.end.eq(offset + Mux(self.of_list, 1, length)),
            self.merge.eq(sums_to(self.offset, Const(1, 1), offset)),
        ]
        return m
