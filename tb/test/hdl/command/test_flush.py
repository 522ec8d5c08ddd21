"""Tests of the flush of the pacer, when a QP stops sending: after the change of its state and before the drain."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract.abi import CommandOpcode, CommandStatus, QpState, make_qpn
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.command.surroundings import PARAMS, CommandBench, start

Op = CommandOpcode


@cocotb.test(timeout_time=100, timeout_unit="us")
async def pacer_is_flushed_before_the_drain(dut):
    env = await start(dut)
    events = []

    async def flush():
        while True:
            await RisingEdge(dut.clk)
            dut.o_flush__ready.value = 0
            if int(dut.o_flush__valid.value):
                assert not int(dut.drain_request.value)
                await env.cycles(20)
                assert int(dut.o_flush__valid.value) and not int(dut.drain_request.value)
                events.append(("flush", int(dut.o_flush__payload.value),
                               (await env.qp(int(dut.o_flush__payload.value))).state))
                dut.o_flush__ready.value = 1
                await RisingEdge(dut.clk)
                dut.o_flush__ready.value = 0

    async def drained():
        events.append("drain")

    env.before_drained = drained
    cocotb.start_soon(flush())
    qpn = make_qpn(5, 3, PARAMS.qpn_width)
    await env.do(Op.QP_CREATE, qpn=qpn)
    await env.do(Op.QP_DESTROY, CommandStatus.BAD_INDEX, qpn=qpn ^ 1 << PARAMS.qpn_width)
    assert not events
    await env.do(Op.QP_MODIFY, qpn=qpn, qp_state=QpState.RTS)
    assert events == ["drain"], "a QP that still sends keeps its descriptors"
    for state in (QpState.RTR, QpState.ERR):
        events.clear()
        await env.do(Op.QP_MODIFY, qpn=qpn, qp_state=state)
        assert events == [("flush", 5, state), "drain"]
    events.clear()
    await env.do(Op.QP_DESTROY, qpn=qpn)
    assert events == [("flush", 5, QpState.RESET), "drain"]


@pytest.mark.parametrize("sim", SIMULATORS)
def test_pacer_is_flushed(sim):
    simulate(CommandBench(PARAMS.with_(pace_descriptors=16)), name="command_flush", cases=__file__, sim=sim)
