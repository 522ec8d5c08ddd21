"""Tests of the flush of the pacer, when a QP stops sending: after the change of its state and before the drain."""

import pytest

from weft.hdl.contract.abi import QpState, make_qpn
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.command.surroundings import PARAMS, CommandBench, Op, Status, limit, start


@limit(100)
async def pacer_is_flushed_before_the_drain(dut):
    env = await start(dut)
    events = []

    async def flushed(qpn):
        events.append(("flush", qpn, (await env.qp(qpn)).state))

    async def drained():
        events.append("drain")

    env.before_flushed, env.before_drained = flushed, drained
    qpn = make_qpn(5, 3, PARAMS.qpn_width)
    await env.do(Op.QP_CREATE, qpn=qpn)
    await env.do(Op.QP_DESTROY, Status.BAD_INDEX, qpn=qpn ^ 1 << PARAMS.qpn_width)
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
    simulate(CommandBench(PARAMS), name="command_processor", cases=__file__, sim=sim)
