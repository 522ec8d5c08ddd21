"""Reassembly memory for completions: sixteen banks, one per double word of a line."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from ..part.layouts import BEAT_BITS
from .scatter import ScatteredBeat
from .tlp import DWORD_BITS, LANES


class SlotMemory(wiring.Component):
    """Slots of ``rows`` lines. A line of host address A is in row A / 64 modulo ``rows`` of its slot.

    One scattered beat is written and one line read per cycle; read data comes one cycle after ``read_en``
    and is held until the next one.

    Parameters
    ----------
    slots, rows : int
        ``rows`` is a power of two, 64 at most.

    Members
    -------
    write : In(ScatteredBeat)
        The lanes of ``write.lanes`` are written when ``write_en`` is high.
    write_en : In(1)
    write_slot : In(range(slots))
    read_en : In(1)
    read_slot, read_row : In
    read_data : Out(512)
    """

    def __init__(self, *, slots, rows):
        self.slots, self.rows = slots, rows
        self.row_width = exact_log2(rows)
        if self.row_width > 6:
            raise ValueError(f"a slot of {rows} lines is larger than 4 KiB")
        super().__init__({
            "write": In(ScatteredBeat), "write_en": In(1), "write_slot": In(range(slots)),
            "read_en": In(1), "read_slot": In(range(slots)), "read_row": In(self.row_width),
            "read_data": Out(BEAT_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        row, next_row = self.write.row[:self.row_width], (self.write.row + 1)[:self.row_width]
        lines = []
        for lane in range(LANES):
            bank = Memory(shape=DWORD_BITS, depth=self.slots * self.rows, init=[])
            m.submodules[f"bank{lane}"] = bank
            write, read = bank.write_port(), bank.read_port()
            m.d.comb += [
                write.en.eq(self.write_en & self.write.lanes[lane]),
                write.addr.eq(Cat(Mux(self.write.upper[lane], row, next_row), self.write_slot)),
                write.data.eq(self.write.data.word_select(lane, DWORD_BITS)),
                read.en.eq(self.read_en),
                read.addr.eq(Cat(self.read_row, self.read_slot)),
            ]
            lines.append(read.data)
        m.d.comb += self.read_data.eq(Cat(lines))
        return m
