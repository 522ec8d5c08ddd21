"""One transfer handed to several takers."""

from amaranth.hdl import Cat, Signal


def fork(m, source, branches):
    """Connects handshakes so that ``source`` transfers once every wanted branch has taken it.

    Each branch takes at its own pace, in any order; ``valid`` of a branch depends on no ``ready``.
    The caller connects the payloads. One transfer per cycle while every branch is ready.

    Parameters
    ----------
    m : Module
    source : stream
        Its ``ready`` is driven.
    branches : list of (stream, wanted)
        Their ``valid`` is driven; ``wanted`` is an expression of the source's payload.
    """
    settled = []
    for branch, wanted in branches:
        taken = Signal(name="taken")
        m.d.comb += branch.valid.eq(source.valid & wanted & ~taken)
        settled.append(taken | ~wanted | branch.ready)
        with m.If(source.valid):
            m.d.sync += taken.eq((taken | (branch.valid & branch.ready)) & ~source.ready)
    m.d.comb += source.ready.eq(Cat(*settled).all())
