"""How many nodes of every list were linked and not fetched yet, and where one begins."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..params import CardParams
from ..table.kinds import QP_TABLE
from .block import stray
from .doorbell_check import DoorbellCheck


def ahead_step(params):
    """One node of a QP was fetched (``back``: will be fetched again)."""
    return data.StructLayout({"qpn": params.qpn_width, "back": 1})


def ahead_row(params):
    """``count`` nodes are ahead; ``begins``: none of them was fetched, and the first one lies in block ``first``."""
    return data.StructLayout({"count": params.block_bits, "first": params.block_bits, "begins": 1})


class AheadTable(wiring.Component):
    """Nodes linked ahead of the card, of every QP: link doorbells add, fetched nodes take away.

    Takes one doorbell per cycle, always; a step when there is none, nor was one for its QP in the cycle before: a step
    goes with what the last doorbell told. A doorbell of another generation than the QP's,
    of no QP, or of a QPN beyond the table, is ignored. The count stops at its largest value: a driver cannot have
    linked more nodes than there are blocks. A doorbell that finds none ahead says where the list goes on, for the
    node before may be gone; a step ends that. A row can be read two cycles after a doorbell or step.

    Parameters
    ----------
    params : CardParams
    readers : int
        Read ports.

    Members
    -------
    post_stb, post_qpn, post_generation, post_nodes, post_block : In
        A doorbell; a block number that is too large is that of a block outside all extents.
    qp : Out(QP_TABLE.read_port(params))
    create_stb, create_qpn : In
        Start of a QP's life: nothing is linked; held until ``create_done``.
    create_done : Out(1)
    step : In(stream.Signature(ahead_step(params)))
    took : Out(1)
        A doorbell was taken (one cycle after it): ``took_qpn`` says whose, ``took_nodes`` how many.
    read_en, read_index, read_data : arrays of ports
        Data comes one cycle after ``read_en`` and stays.
    """

    def __init__(self, params: CardParams, *, readers):
        self.params, self.readers = params, readers
        super().__init__({
            "post_stb": In(1), "post_qpn": In(24), "post_generation": In(8), "post_nodes": In(8), "post_block": In(24),
            "qp": Out(QP_TABLE.read_port(params)),
            "create_stb": In(1), "create_qpn": In(24), "create_done": Out(1),
            "step": In(stream.Signature(ahead_step(params))),
            "took": Out(1), "took_qpn": Out(params.qpn_width), "took_nodes": Out(8),
            "read_en": In(1).array(readers),
            "read_index": In(params.qpn_width).array(readers),
            "read_data": Out(ahead_row(params)).array(readers),
        })

    def elaborate(self, platform):
        m = Module()
        bits = self.params.block_bits
        m.submodules.memory = memory = Memory(shape=ahead_row(self.params), depth=self.params.qps, init=[])
        write = memory.write_port()
        check = memory.read_port(transparent_for=(write,))     # the operation before may be of the same QP

        m.submodules.doorbell = doorbell = DoorbellCheck(self.params)
        wiring.connect(m, doorbell.qp, wiring.flipped(self.qp))

        asked, creating, stepping, back = Signal(), Signal(), Signal(), Signal()
        nodes, block, count = Signal(8), Signal(bits), check.data.count
        m.d.comb += [
            doorbell.stb.eq(self.post_stb), doorbell.qpn.eq(self.post_qpn),
            doorbell.generation.eq(self.post_generation), check.en.eq(1),
            self.create_done.eq(self.create_stb & ~self.post_stb),
            self.step.ready.eq(~self.post_stb & ~self.create_stb & ~(asked & (write.addr == self.step.p.qpn))),
            check.addr.eq(Mux(self.post_stb, self.post_qpn, Mux(self.create_stb, self.create_qpn, self.step.p.qpn))),
        ]
        m.d.sync += [
            asked.eq(self.post_stb), creating.eq(self.create_done), stepping.eq(self.step.valid & self.step.ready),
            back.eq(self.step.p.back), nodes.eq(self.post_nodes), write.addr.eq(check.addr),
            block.eq(Mux(self.post_block[bits:].any(), stray(self.params), self.post_block)),
        ]
        more = Signal(bits + 1)
        # Which of the three it is is known early, whether the doorbell is a good one is not.
        m.d.comb += [
            self.took.eq(doorbell.good), self.took_qpn.eq(write.addr), self.took_nodes.eq(nodes),
            more.eq(count + nodes),
            write.en.eq(self.took | creating | stepping),
        ]
        with m.If(asked):
            m.d.comb += [write.data.count.eq(more[:bits] | more[bits].replicate(bits)),
                         write.data.begins.eq(check.data.begins | (count == 0)),
                         write.data.first.eq(Mux(count == 0, block, check.data.first))]
        with m.Elif(stepping):
            m.d.comb += write.data.count.eq(count + Cat(1, (~back).replicate(bits - 1)))
        for k in range(self.readers):
            port = memory.read_port()
            m.d.comb += [port.en.eq(self.read_en[k]), port.addr.eq(self.read_index[k]), self.read_data[k].eq(port.data)]
        return m
