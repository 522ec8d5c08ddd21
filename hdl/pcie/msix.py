"""MSI-X: table, pending bits, and messages as 4-byte writes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..part.interfaces import MsixTable
from ..part.layouts import Beat, DmaRequest

VECTOR_WIDTH = 5
ENTRY_BYTES = 16
MESSAGE_BYTES = 4


class Msix(wiring.Component):
    """Turns interrupt vectors into writes, ordered after everything that the DMA write engine granted before.

    A vector becomes pending; a pending vector that is not masked is sent, when the host has enabled the function's
    interrupts and has not masked them all. One that is raised again before
    it was sent is sent once. A vector that the table does not have is dropped. One message per (vectors + 3) cycles
    at worst.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(5))
        Vector; ``ready`` is always 1.
    enable : In(1)
        Enabled and not masked as a whole.
    o_request, o_data : Out(stream DmaRequest), Out(stream Beat)
        A client of :class:`~weft.hdl.pcie.dma_write.DmaWrite`.
    table : In(MsixTable)
        Host reads and writes of the table; byte strobes cover whole 32-bit halves.
    """

    def __init__(self, params):
        self._vectors = params.msix_vectors
        if not 1 <= self._vectors <= 1 << VECTOR_WIDTH:
            raise ValueError(f"msix_vectors is {self._vectors}; choose 1 to {1 << VECTOR_WIDTH}")
        super().__init__({
            "i": In(stream.Signature(VECTOR_WIDTH)), "enable": In(1),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o_data": Out(stream.Signature(Beat)),
            "table": In(MsixTable),
        })

    def elaborate(self, platform):
        m = Module()
        vectors = self._vectors
        masked, pending = Signal(vectors, init=(1 << vectors) - 1), Signal(vectors)

        # Words of an entry: address low, address high, data; the control word is `masked`.
        def in_table(address):
            return (address >= abi.MSIX_TABLE_OFFSET) & (address < abi.MSIX_TABLE_OFFSET + ENTRY_BYTES * vectors)

        table_write = Signal()
        m.d.comb += table_write.eq(self.table.w_stb & in_table(self.table.w_address))
        w_vector, w_second = self.table.w_address[4:4 + VECTOR_WIDTH], self.table.w_address[3]
        r_vector, r_second = self.table.r_address[4:4 + VECTOR_WIDTH], self.table.r_address[3]
        fire_vector = Signal(range(max(vectors, 2)))
        stored, fired = [], []
        for k, name in enumerate(("address_low", "address_high", "message")):
            words = Memory(shape=32, depth=vectors, init=[])
            m.submodules[name] = words
            write, read, fire = words.write_port(), words.read_port(domain="comb"), words.read_port(domain="comb")
            half = k % 2
            m.d.comb += [
                write.addr.eq(w_vector), write.data.eq(self.table.w_data.word_select(half, 32)),
                write.en.eq(table_write & (w_second == k // 2) & self.table.w_mask[4 * half]),
                read.addr.eq(r_vector), fire.addr.eq(fire_vector),
            ]
            stored.append(read.data)
            fired.append(fire.data)
        with m.If(table_write & w_second & self.table.w_mask[4]):
            m.d.sync += masked.bit_select(w_vector, 1).eq(self.table.w_data[32])

        with m.If(in_table(self.table.r_address)):
            m.d.sync += self.table.r_data.eq(Mux(r_second, Cat(stored[2], masked.bit_select(r_vector, 1), Const(0, 31)),
                                           Cat(stored[0], stored[1])))
        with m.Elif(self.table.r_address == abi.MSIX_PBA_OFFSET):
            m.d.sync += self.table.r_data.eq(pending)
        with m.Else():
            m.d.sync += self.table.r_data.eq(0)

        # Check one vector per cycle; a message is two transfers, request and data.
        m.d.comb += [
            self.i.ready.eq(1),
            self.o_request.p.length.eq(MESSAGE_BYTES),
            self.o_request.p.last.eq(1),
            self.o_data.p.empty.eq(64 - MESSAGE_BYTES),
            self.o_data.p.last.eq(1),
        ]
        with m.If(self.o_request.ready):
            m.d.sync += self.o_request.valid.eq(0)
        with m.If(self.o_data.ready):
            m.d.sync += self.o_data.valid.eq(0)
        with m.If(~self.o_request.valid & ~self.o_data.valid):
            m.d.sync += fire_vector.eq(Mux(fire_vector == vectors - 1, 0, fire_vector + 1))
            with m.If(self.enable & (pending & ~masked).bit_select(fire_vector, 1)):
                m.d.sync += [
                    self.o_request.valid.eq(1), self.o_data.valid.eq(1),
                    self.o_request.p.address.eq(Cat(fired[0], fired[1])),
                    self.o_data.p.data.eq(fired[2]),
                    pending.bit_select(fire_vector, 1).eq(0),
                ]
        with m.If(self.i.valid & (self.i.payload < vectors)):
            m.d.sync += pending.bit_select(self.i.payload, 1).eq(1)
        return m
