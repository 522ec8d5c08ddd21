"""What a packet means to the window of its QP."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data

from ..contract.params import exact_log2
from ..part.layouts import Verdict
from ..part.logic import one_hot


def classify(m, window, request, distance, too_far, row):
    """What a request means against its window; combinational."""
    bits = window.params.window_bits
    seen = Signal(data.StructLayout({
        "verdict": Verdict, "psn": 32, "distance": 24, "mark": bits, "marks": 1, "first": 1,
        "slide": 24, "insert": 1, "seal": 1, "slides": 1}))
    of_cum, beyond_cum = Signal(24), Signal(24)
    place, reorder = distance[:exact_log2(bits)], Signal(range(bits), name="reorder")   # `reorder`: less 1
    behind, far, stale, beyond, received, ahead = (Signal(name=n) for n in (
        "behind", "far", "stale", "beyond", "received", "ahead"))
    m.d.comb += [
        of_cum.eq(window.cum - row.base[:24]), beyond_cum.eq(request.psn - window.cum),
        seen.psn.eq(row.base + distance),
        seen.distance.eq(distance),
        behind.eq(distance < 0),
        far.eq(~behind & (distance & too_far).any()),
        stale.eq(behind & (~of_cum[-1] | beyond_cum[-1])),      # all three 24 bits with a sign
        received.eq((distance < bits) & (row.bitmap >> place)[0]),
        ahead.eq(~behind & ~far & ~request.probe & ~request.retransmission), beyond.eq(distance > reorder),
        # Of one that was received before, the bit is set. What was received comes last.
        seen.mark.eq(one_hot(1, place, bits)), seen.marks.eq(ahead & ~beyond),
        seen.first.eq((distance == 0) & ~request.probe & ~request.retransmission),      # it marks the base
        seen.slide.eq(Mux(request.probe, distance, Mux(beyond, distance - reorder, 0))),    # if it slides
    ]
    m.d.sync += reorder.eq(Mux(window.reorder_distance > bits, bits - 1,
                               Mux(window.reorder_distance == 0, 0, window.reorder_distance - 1)))
    with m.If(far):
        m.d.comb += seen.verdict.eq(Verdict.FAR)
    with m.Elif(request.probe):
        m.d.comb += [seen.verdict.eq(Verdict.PROBE), seen.seal.eq(1),
                     seen.slides.eq(~behind & (request.psn != row.base[:24]))]
    with m.Elif(stale):
        m.d.comb += seen.verdict.eq(Verdict.STALE)
    with m.Elif(request.retransmission):
        with m.If(~behind):
            m.d.comb += seen.verdict.eq(Verdict.STALE)
        with m.Else():
            m.d.comb += seen.verdict.eq(Verdict.MATCH)
    with m.Elif(behind):
        m.d.comb += seen.verdict.eq(Verdict.LATE)
    with m.Elif(received):
        m.d.comb += seen.verdict.eq(Verdict.DUPLICATE)
    with m.Else():
        m.d.comb += [seen.verdict.eq(Verdict.ACCEPT), seen.seal.eq(request.ack_req), seen.insert.eq(beyond),
                     seen.slides.eq(beyond)]
    return seen
