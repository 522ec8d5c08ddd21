"""Errors of completions, provoked with two RTL cards: the table of
:mod:`~weft.tb.test.driver.operation.error_table`.
"""

import cocotb
from cocotb.task import bridge

from weft.driver.verbs.context import ContextConfig
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.test.driver.operation.error_table import TABLE, check, failed_card, no_space_to_read, no_space_to_receive

DELAY_NS = 500
FAST = {"timeout": 2, "retry_cnt": 1, "rnr_retry": 1, "min_rnr_timer": 1}
# A failing card has separate benches; filling its tables takes long.
LEFT_OUT = (failed_card, no_space_to_read, no_space_to_receive)
CASES = [case for case in TABLE if case[2] not in LEFT_OUT]
CAP = {"max_send_wr": 4, "max_recv_wr": 4}


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def errors(dut):
    link = LinkConfig(delay_ns=DELAY_NS)
    pair = RtlPair(dut, EnvConfig(link, link), ContextConfig(ring_log2=7, probe_timeout_ns=10_000), seed=bench_seed(),
                   judged=False)
    await pair.start()
    await bridge(_run)(pair)
    for guard in pair.guards.values():
        guard.check()
    pair.env.finish()


def _run(pair):
    """Drive both hosts from one thread; each case has separate QPs and memory, and releases all of it."""
    free = [(context.mr_indices.free, context.pte_ranges.free_total) for context in pair.contexts]
    delivers = [link.deliver for link in pair.links]
    for sender, receiver, provoke in CASES:
        began = pair.now_ns()
        operations = OperationPair(4096, cap=CAP, cqe=16, pair=pair, **FAST)
        check(operations, sender, receiver, provoke)
        for link, deliver in zip(pair.links, delivers, strict=True):
            link.drop, link.deliver = None, deliver
        for host in operations.hosts:
            host.close()
        cocotb.log.info("%s: %s, %d us", provoke.__name__, sender.name, (pair.now_ns() - began) / 1000)
        assert free == [(context.mr_indices.free, context.pte_ranges.free_total) for context in pair.contexts]
        assert not any(context.engine.lender.windows.open for context in pair.contexts), provoke.__name__
