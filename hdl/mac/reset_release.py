"""Reset synchroniser: asynchronous assertion, synchronous release."""

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import AsyncFFSynchronizer
from amaranth.lib.wiring import In, Out

HOLD_LOG2 = 5             # minimum length of a reset in cycles: both sides of a crossing must see it


class ResetRelease(wiring.Component):
    """A reset of ``domain``, synchronised to its clock.

    Members
    -------
    arst : In(1)
        Asynchronous, active high.
    rst : Out(1)
        Rises with ``arst``, even without a clock; falls at an edge of the clock, 32 cycles after ``arst``. High at
        power-up.
    """

    def __init__(self, domain):
        self._domain = domain
        super().__init__({"arst": In(1), "rst": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        held, wait = Signal(), Signal(HOLD_LOG2)
        m.submodules.release = AsyncFFSynchronizer(self.arst, held, o_domain=self._domain)
        m.domains.held = ClockDomain(async_reset=True, local=True)
        m.d.comb += [ClockSignal("held").eq(ClockSignal(self._domain)), ResetSignal("held").eq(held)]
        m.d.held += self.rst.eq(~wait.all())
        with m.If(~wait.all()):
            m.d.held += wait.eq(wait + 1)
        return m
