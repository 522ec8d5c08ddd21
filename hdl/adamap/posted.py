"""Per-QP value posted by a doorbell, with the generation it was posted for."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..params import CardParams


class Posted(data.Struct):
    """Newest value of a QP."""

    generation: 8
    value: 32


class PostedTable(wiring.Component):
    """Newest doorbell value of every QP.

    Takes one doorbell per cycle, always. A doorbell of another generation than the QP's, or of a QPN beyond
    the table, is ignored. A value can be read two cycles after its doorbell.

    Parameters
    ----------
    params : CardParams
    readers : int
        Read ports.

    Members
    -------
    post_stb, post_qpn, post_generation, post_value : In
        A doorbell.
    create_stb, create_qpn, create_generation, create_value : In
        Start of a QP's life; held until ``create_done``.
    create_done : Out(1)
    took : Out(1)
        A doorbell was taken (one cycle after it): ``took_qpn`` says whose, ``took_change`` by how much the value rose.
    read_en, read_index, read_data : arrays of ports
        Data comes one cycle after ``read_en`` and stays.
    """

    def __init__(self, params: CardParams, *, readers):
        self.params, self.readers = params, readers
        super().__init__({
            "post_stb": In(1), "post_qpn": In(24), "post_generation": In(8), "post_value": In(32),
            "create_stb": In(1), "create_qpn": In(24), "create_generation": In(8), "create_value": In(32),
            "create_done": Out(1),
            "took": Out(1), "took_qpn": Out(params.qpn_width), "took_change": Out(16),
            "read_en": In(1).array(readers),
            "read_index": In(params.qpn_width).array(readers),
            "read_data": Out(Posted).array(readers),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Posted, depth=self.params.qps, init=[])
        write, check = memory.write_port(), memory.read_port()
        posted = Signal(Posted)
        checking = Signal()
        index = Signal(self.params.qpn_width)
        # The check may read the value of the doorbell just before it late by one: only the count suffers.
        m.d.comb += [check.en.eq(1), check.addr.eq(self.post_qpn)]
        m.d.sync += [
            checking.eq(self.post_stb & (self.post_qpn < self.params.qps)),
            index.eq(self.post_qpn), posted.generation.eq(self.post_generation), posted.value.eq(self.post_value),
        ]
        m.d.comb += [
            self.took.eq(checking & (check.data.generation == posted.generation)),
            self.took_qpn.eq(index),
            self.took_change.eq(posted.value - check.data.value),
        ]
        with m.If(checking):
            m.d.comb += [write.addr.eq(index), write.data.eq(posted), write.en.eq(self.took)]
        with m.Elif(self.create_stb & ~self.post_stb):
            m.d.comb += [
                write.addr.eq(self.create_qpn), write.data.generation.eq(self.create_generation),
                write.data.value.eq(self.create_value), write.en.eq(1), self.create_done.eq(1),
            ]
        for k in range(self.readers):
            port = memory.read_port()
            m.d.comb += [port.en.eq(self.read_en[k]), port.addr.eq(self.read_index[k]), self.read_data[k].eq(port.data)]
        return m
