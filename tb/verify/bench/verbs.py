"""Payload rates of operations over two cards, compared with plain writes; and the cost of the driver.

``..._payload_gbps``: messages of 64 KiB, A to B for writes and sends, B to A for reads, on one QP of PMTU 4096, 16 of
them outstanding; measured from the completion of the eighth to that of the last. Both drivers take no simulated time
and wait for interrupts.
"""

import os
from functools import partial

import cocotb

from weft.driver.terms.enums import MTU, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.wr import SendWR
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.pair.operation_pair import Host, Objects
from weft.tb.sim.pair.settings import ALL_ACCESS, PEER, SIDES
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.verify.bench import fairness
from weft.tb.verify.bench.benchmark import CARDS
from weft.tb.verify.bench.card_lab import PRESET, SILENCE_NS, Lab
from weft.tb.verify.bench.driver_cost import CHAIN, DriverCost

MESSAGE_BYTES, WINDOW, MESSAGES, SKIPPED = 64 << 10, 16, 56, 8
SHARE = 0.95                # required fraction of the figure of writes
US_PER_CHUNK, DOORBELLS_PER_LIST = 30, 1
OBJECTS = Objects(WINDOW * MESSAGE_BYTES, cap={"max_send_wr": WINDOW, "max_recv_wr": 2 * WINDOW}, cqe=4 * WINDOW)
OPCODES = {"write": WROpcode.RDMA_WRITE, "send": WROpcode.SEND, "read": WROpcode.RDMA_READ}


class VerbsLab(Lab):
    """Two cards with one QP each; only the current operation may write the memory."""

    async def stream(self, name, messages):
        """Transfer ``messages`` messages of one kind."""
        self.report_progress(name)
        self.ends = {side: await self.call(Host, self.contexts[side], OBJECTS) for side in SIDES}
        for side, peer in PEER.items():
            await self.call(self.ends[side].qp.connect, self.ends[peer].qp.connection, path_mtu=MTU.MTU_4096,
                            qp_access_flags=ALL_ACCESS)
        data = os.urandom(WINDOW * MESSAGE_BYTES)
        source, target = ("b", "a") if name == "read" else ("a", "b")
        self.ends[source].mr.write(data)
        self.done = False
        await self.gather(partial(self._ask, OPCODES[name], messages),
                          partial(self._answer, OPCODES[name], messages))
        assert self.ends[target].mr.read(len(data), 0) == data, "the bytes received differ"
        await self.close_endpoints(self.ends)

    def _ask(self, opcode, messages):
        """Keep as many requests as possible outstanding."""
        end, device, peer = self.ends["a"], self.contexts["a"].device, self.ends["b"].mr
        posted, times = 0, []
        try:
            while len(times) < messages:
                while posted < messages and posted - len(times) < WINDOW:
                    at = posted % WINDOW * MESSAGE_BYTES
                    end.qp.post_send(SendWR(posted, opcode, sg=[end.sge(at, MESSAGE_BYTES)], rkey=peer.rkey,
                                            remote_addr=peer.buf + at, send_flags=SendFlags.SIGNALED))
                    posted += 1
                for wc in end.cq.wait(WINDOW, SILENCE_NS):
                    assert wc.status is WCStatus.SUCCESS, wc
                    times.append(device.now_ns())
        finally:
            self.done = True
        self.figures[str(opcode.name)] = 8 * MESSAGE_BYTES * (messages - SKIPPED) / (times[-1] - times[SKIPPED - 1])

    def _answer(self, opcode, messages):
        """Post receives for sends, and serve the driver."""
        context, end = self.contexts["b"], self.ends["b"]
        posted = 0
        while not self.done:
            while opcode is WROpcode.SEND and posted < messages and end.qp.engine.receives < WINDOW:
                end.recv(posted % WINDOW * MESSAGE_BYTES, MESSAGE_BYTES, wr_id=posted)
                posted += 1
            for wc in end.cq.poll(WINDOW)[1]:
                assert wc.status is WCStatus.SUCCESS, wc
            context.wait(1_000)
        context.progress()


@cocotb.test()
async def operations(dut):
    settings = given()
    async with VerbsLab(dut, settings) as lab:
        for name in OPCODES:
            await lab.stream(name, settings["messages"])


def run_operations(*, progress):
    """Return the payload rates by name of the opcode."""
    return run_cards(preset(PRESET), __file__, {"progress": str(progress), "messages": MESSAGES}, seed=1)


def measure(progress):
    cost = DriverCost()     # before other code has grown the heap
    gbps = run_operations(progress=progress)
    write = gbps[OPCODES["write"].name]
    rates = (f"messages of {MESSAGE_BYTES >> 10} KiB on one QP of PMTU 4096, {WINDOW} outstanding; from the completion "
             f"of message {SKIPPED} to that of message {MESSAGES}; {CARDS}")
    lists = f"lists of {CHAIN} writes of 64 KiB on one QP over functional cards"
    return [
        Row("write_payload_gbps", "Gb/s", write, conditions=rates),
        *(Row(f"{name}_payload_gbps", "Gb/s", gbps[OPCODES[name].name], at_least=SHARE * write, conditions=rates)
          for name in ("send", "read")),
        *fairness.rows(),
        Row("driver_us_per_chunk", "µs", cost.us_per_chunk, at_most=US_PER_CHUNK,
            conditions=f"CPU time of all Python of both drivers, the least of several {lists}, which run in between"),
        Row("driver_us_per_chunk_warm", "µs", cost.warm_us_per_chunk,
            conditions="the same directly after other drivers did the same: with warm caches"),
        Row("doorbells_per_post_list", "", cost.doorbells_per_list, at_most=DOORBELLS_PER_LIST, conditions=lists),
    ]
