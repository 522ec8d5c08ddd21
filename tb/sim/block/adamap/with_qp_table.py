"""Part of the Adamap subsystem together with the QP table from which it reads generations."""

from types import SimpleNamespace

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.hdl.part import layouts
from weft.hdl.table.kinds import QP_STATES


class WithQpTable(wiring.Component):
    """``part``, which has ``params`` and an array ``qp`` of read ports, with a table at these ports.

    Its ports are the other ports of ``part``, and ``qp_write``.
    """

    def __init__(self, part):
        self.part = part
        members = {name: member for name, member in part.signature.members.items() if name != "qp"}
        super().__init__({**members, "qp_write": In(QP_STATES.write_port(part.params))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.part = part = self.part
        m.submodules.qp_table = table = QP_STATES.memory(part.params, readers=len(part.qp))
        for reader, port in zip(part.qp, table.read, strict=True):
            connect(m, reader, port)
        connect(m, flipped(self.qp_write), table.write)
        pass_through(m, part, self, except_for=("qp",))
        return m


def pass_through(m, part, whole, *, except_for):
    """Connect the ports of ``part`` to the ports of the same names of the enclosing component ``whole``."""
    for name, member in part.signature.members.items():
        if name in except_for:
            continue
        inner, outer = getattr(part, name), getattr(whole, name)
        for a, b in zip(inner, outer, strict=True) if member.dimensions else [(inner, outer)]:
            if member.is_signature:
                connect(m, a, flipped(b))
            else:
                m.d.comb += a.eq(b) if member.flow is In else b.eq(a)


async def write_qp(dut, qpn, generation, state=abi.QpState.RTS):
    """Write a QP into the table; state RESET removes it."""
    dut.qp_write__index.value = qpn
    shape = layouts.qp_state(SimpleNamespace(qpn_width=len(dut.qp_write__index)))
    dut.qp_write__entry.value = shape.const({"state": state.value, "generation": generation}).as_bits()
    dut.qp_write__en.value = 1
    await RisingEdge(dut.clk)
    dut.qp_write__en.value = 0
