"""Reassembly of completions: each tag has a slot that they fill."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from ..part.layouts import BEAT_BITS
from .scatter import ScatteredBeat
from .slot_memory import SlotMemory


class ReadSlots(wiring.Component):
    """Selects the completions of a reader's tags and stores each in the slot of its tag.

    One completion beat and one line read per cycle. ``filled`` comes a cycle after its beat.

    Parameters
    ----------
    first_tag, tags : int
    rows : int
        Lines of a slot, a power of two.

    Members
    -------
    completion : In(ScatteredBeat)
        Completions of any tag; those of other readers are ignored.
    completion_valid : In(1)
    filled : Out(1)
        A beat was stored for ``slot``. ``done``: nothing more will come for it; ``error``: it failed.
    slot, done, error : Out(range(tags)), Out(1), Out(1)
    read_en, read_slot, read_row, read_data
        See :class:`SlotMemory`.
    """

    def __init__(self, *, first_tag, tags, rows):
        self._first_tag, self._tags, self._rows = first_tag, tags, rows
        super().__init__({
            "completion": In(ScatteredBeat), "completion_valid": In(1),
            "filled": Out(1), "slot": Out(range(tags)), "done": Out(1), "error": Out(1),
            "read_en": In(1), "read_slot": In(range(tags)), "read_row": In(exact_log2(rows)),
            "read_data": Out(BEAT_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = SlotMemory(slots=self._tags, rows=self._rows)
        m.d.comb += [
            memory.write.eq(self.completion),
            memory.write_slot.eq(self.completion.tag - self._first_tag),
            memory.write_en.eq(self.completion_valid & (self.completion.tag >= self._first_tag)
                               & (self.completion.tag < self._first_tag + self._tags)),
            memory.read_en.eq(self.read_en), memory.read_slot.eq(self.read_slot), memory.read_row.eq(self.read_row),
            self.read_data.eq(memory.read_data),
        ]
        m.d.sync += [
            self.filled.eq(memory.write_en), self.slot.eq(memory.write_slot),
            self.done.eq(self.completion.done), self.error.eq(self.completion.error),
        ]
        return m
