"""Memory of the QP, MR and page tables: one writer, several readers."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2


def read_port(index_width, shape):
    """Return the signature of a read port, seen from the reader.

    ``entry`` is that of ``index`` one cycle after ``en``, and is held.
    """
    return wiring.Signature({"en": Out(1), "index": Out(index_width), "entry": In(shape)})


def write_port(index_width, shape):
    """Return the signature of the write port, seen from the writer."""
    return wiring.Signature({"en": Out(1), "index": Out(index_width), "entry": Out(shape)})


class EntryTable(wiring.Component):
    """Table of entries in block RAM or UltraRAM; every entry is zero after configuration and survives a reset.

    Every port works in every cycle, with a latency of one. A read in the cycle of a write to the same
    entry gives the old one; from the next cycle on every read gives the new one.

    Parameters
    ----------
    depth : int
        Entries, a power of two.
    shape : ShapeLike
        Shape of an entry.
    readers : int
        Number of read ports.
    ultra : bool, optional
        For synthesis: in UltraRAM, where the FPGA has it.

    Members
    -------
    read : In(read_port).array(readers)
        ``read[k].entry`` is valid one cycle after ``read[k].en`` and holds until the next ``en``.
    write : In(write_port)
    """

    def __init__(self, *, depth, shape, readers, ultra=False):
        width = exact_log2(depth)
        if readers < 1:
            raise ValueError(f"a table needs at least one reader, not {readers}")
        self.depth, self.shape, self.readers, self.ultra = depth, shape, readers, ultra
        super().__init__({
            "read": In(read_port(width, shape)).array(readers),
            "write": In(write_port(width, shape)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"ram_style": "ultra"} if self.ultra else {})
        for port in self.read:
            read = memory.read_port(domain="sync")
            m.d.comb += [read.en.eq(port.en), read.addr.eq(port.index), port.entry.eq(read.data)]
        write = memory.write_port(domain="sync")
        m.d.comb += [write.en.eq(self.write.en), write.addr.eq(self.write.index), write.data.eq(self.write.entry)]
        return m
