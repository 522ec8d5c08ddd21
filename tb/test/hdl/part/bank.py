"""Components side by side in one design, so that one simulation tests them all."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Bank(wiring.Component):
    """Components with their ports; the names of the ports of component ``name`` begin with ``name__``.

    Parameters
    ----------
    parts : dict of str to wiring.Component
    """

    def __init__(self, parts):
        self.parts = parts
        super().__init__({name: Out(part.signature) for name, part in parts.items()})

    def elaborate(self, platform):
        m = Module()
        for name, part in self.parts.items():
            m.submodules[name] = part
            outside = part.signature.flatten(getattr(self, name))
            for (_, member, inner), (_, _, outer) in zip(part.signature.flatten(part), outside, strict=True):
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        return m
