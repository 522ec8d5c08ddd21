"""Table subsystem: QP, MR and page tables with a translator for each direction."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from .kinds import MR_TABLE, PAGE_TABLE, QP_STATES, QP_TABLE
from .translate import Translate, TranslateRequest, Translation

TRANSMIT, RECEIVE, COMMAND = range(3)
ADAMAP_READERS = 4
QP_READERS = 3
STATE_READERS = ADAMAP_READERS + 1      # Adamap, and the window check of the receive subsystem


class Tables(wiring.Component):
    """Tables and translators; timing is that of :class:`Translate`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i, o : arrays of 2
        Translation requests and responses of transmit and receive.
    enable : In(1)
        The tables are cleared.
    busy : Out(1).array(2)
        A translator holds a request.
    qp_read, qp_write, mr_read, mr_write, page_write : In(read_port), In(write_port)
        For the command processor.
    place_read : In(QP_STATES.read_port(params))
        For the receive subsystem.
    list_read : In(QP_STATES.read_port(params)).array(4)
        For the Adamap subsystem.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(TranslateRequest)).array(2),
            "o": Out(stream.Signature(Translation)).array(2),
            "enable": In(1),
            "busy": Out(1).array(2),
            "qp_read": In(QP_TABLE.read_port(params)), "qp_write": In(QP_TABLE.write_port(params)),
            "mr_read": In(MR_TABLE.read_port(params)), "mr_write": In(MR_TABLE.write_port(params)),
            "page_write": In(PAGE_TABLE.write_port(params)),
            "place_read": In(QP_STATES.read_port(params)),
            "list_read": In(QP_STATES.read_port(params)).array(ADAMAP_READERS),
        })

    def elaborate(self, platform):
        m = Module()
        flipped = wiring.flipped
        m.submodules.qp = qp = QP_TABLE.memory(self.params, readers=QP_READERS)
        m.submodules.qp_states = states = QP_STATES.memory(self.params, readers=STATE_READERS)
        m.submodules.mr = mr = MR_TABLE.memory(self.params, readers=3)
        m.submodules.page = page = PAGE_TABLE.memory(self.params, readers=2)
        wiring.connect(m, flipped(self.qp_read), qp.read[COMMAND])
        wiring.connect(m, flipped(self.mr_read), mr.read[COMMAND])
        for reader, read in zip((*self.list_read, self.place_read), states.read, strict=True):
            wiring.connect(m, flipped(reader), read)
        wiring.connect(m, flipped(self.qp_write), qp.write)
        m.d.comb += [states.write.en.eq(self.qp_write.en), states.write.index.eq(self.qp_write.index),
                     *[states.write.entry[name].eq(self.qp_write.entry[name]) for name in states.shape.members]]
        wiring.connect(m, flipped(self.mr_write), mr.write)
        wiring.connect(m, flipped(self.page_write), page.write)
        for k, name in ((TRANSMIT, "transmit"), (RECEIVE, "receive")):
            m.submodules[f"translate_{name}"] = translate = Translate(self.params)
            wiring.connect(m, flipped(self.i[k]), translate.i)
            wiring.connect(m, translate.o, flipped(self.o[k]))
            wiring.connect(m, translate.qp_read, qp.read[k])
            wiring.connect(m, translate.mr_read, mr.read[k])
            wiring.connect(m, translate.page_read, page.read[k])
            m.d.comb += [translate.enable.eq(self.enable), self.busy[k].eq(translate.busy)]
        return m
