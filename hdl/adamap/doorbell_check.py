"""Is a doorbell of a living QP?"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import GENERATION_BITS, QpState
from ..contract.params import CardParams
from ..table.kinds import QP_STATES


class DoorbellCheck(wiring.Component):
    """Asks the QP table about a doorbell. Latency 1, one doorbell per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    stb, qpn, generation : In
    qp : Out(QP_STATES.read_port(params))
    good : Out(1)
        A cycle later: the QP is within the table, not in RESET, and of that generation.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({"stb": In(1), "qpn": In(24), "generation": In(8), "qp": Out(QP_STATES.read_port(params)),
                          "good": Out(1)})

    def elaborate(self, platform):
        m = Module()
        asked, generation, entry = Signal(), Signal(GENERATION_BITS), self.qp.entry
        m.d.sync += [asked.eq(self.stb & (self.qpn < self.params.qps)), generation.eq(self.generation)]
        same = entry.generation[:GENERATION_BITS] == generation
        m.d.comb += [
            self.qp.en.eq(self.stb), self.qp.index.eq(self.qpn),
            self.good.eq(asked & same & (entry.state != QpState.RESET.value)),
        ]
        return m
