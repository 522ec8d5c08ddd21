"""Which waiting headers are of a certain QP, known a cycle ahead."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .older import moved_up


class OfQp(wiring.Component):
    """Compares the headers of a queue with a QP. Latency 1: the answer is of the queue as it lies then.

    Parameters
    ----------
    width, places : int

    Members
    -------
    en, qpn : In(1), In(width)
        The QP, if one is asked for.
    present, numbers : In(places), In(width).array(places)
        Where a header waits, and its QP.
    gone : In(places)
        From there on all move up by one place.
    joins, joined : In(places), In(width)
        Where a header of that QP joins them; never while one is gone.
    bits : Out(places)
    """

    def __init__(self, width, places):
        self.places = places
        super().__init__({
            "en": In(1), "qpn": In(width), "present": In(places), "numbers": In(width).array(places),
            "gone": In(places), "joins": In(places), "joined": In(width), "bits": Out(places)})

    def elaborate(self, platform):
        m = Module()
        its = self.present & Cat(self.en & (number == self.qpn) for number in self.numbers)
        new = self.en & (self.joined == self.qpn)
        m.d.sync += self.bits.eq(Cat(moved_up(self.gone, its)) | (self.joins & new.replicate(self.places)))
        return m
