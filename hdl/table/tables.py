"""The table room: QP, MR and page tables with a translator for each direction."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..params import CardParams
from .kinds import MR_TABLE, PAGE_TABLE, QP_TABLE
from .translate import Translate, TranslateRequest, Translation

TRANSMIT, RECEIVE, COMMAND = range(3)
ADAMAP_READERS = 4
QP_READERS = 4 + ADAMAP_READERS    # transmit, receive, commands, the Adamap room, and placing


class Tables(wiring.Component):
    """Tables and translators; timing is that of :class:`Translate`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i, o : arrays of 2
        Translation requests and answers of transmit and receive.
    enable : In(1)
        The tables are cleared.
    busy : Out(1).array(2)
        A translator holds a request.
    qp_read, qp_write, mr_read, mr_write, page_write : In(read_port), In(write_port)
        For the command processor.
    place_read : In(QP_TABLE.read_port(params))
        QP table, for the receive room.
    list_read : In(QP_TABLE.read_port(params)).array(4)
        QP table, for the Adamap room.
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
            "place_read": In(QP_TABLE.read_port(params)),
            "list_read": In(QP_TABLE.read_port(params)).array(ADAMAP_READERS),
        })

    def elaborate(self, platform):
        m = Module()
        flipped = wiring.flipped
        m.submodules.qp = qp = QP_TABLE.memory(self.params, readers=QP_READERS)
        m.submodules.mr = mr = MR_TABLE.memory(self.params, readers=3)
        m.submodules.page = page = PAGE_TABLE.memory(self.params, readers=2)
        wiring.connect(m, flipped(self.qp_read), qp.read[COMMAND])
        wiring.connect(m, flipped(self.mr_read), mr.read[COMMAND])
        for k in range(ADAMAP_READERS):
            wiring.connect(m, flipped(self.list_read[k]), qp.read[COMMAND + 1 + k])
        wiring.connect(m, flipped(self.place_read), qp.read[QP_READERS - 1])
        wiring.connect(m, flipped(self.qp_write), qp.write)
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
