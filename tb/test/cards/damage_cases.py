"""Corrupted or failing reads of host memory: descriptors, commands, nodes, page lists."""

import random
from collections import Counter, deque

import cocotb
from cocotb.task import bridge
from cocotb.triggers import gather

from weft.driver.application.file_transfer import Endpoint
from weft.driver.device.health import DeviceFatal
from weft.driver.queue.command import CommandError
from weft.driver.terms.enums import MTU, AccessFlag, EventType, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.mr import MR
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.faults import DAMAGED, ENDS_BADLY, FaultAgent
from weft.tb.sim.pcie.host import HostConfig

QPS, MESSAGES, MESSAGE = 3, 6, 2_000
LENGTH = QPS * MESSAGES * MESSAGE
SICK = 0                  # QP of which the nodes are damaged
SILENCE_NS, SERVICE_NS = 2_000_000, 1_000
LINK = LinkConfig(delay_ns=500, loss=0.05)


def twice_at_most(spoil):
    """Return ``spoil`` with at most two consecutive faults, so that no command fails for good."""
    last = deque(maxlen=2)

    def spoil_some(at):
        found = spoil(at)
        if found is not None:
            if all(last) and len(last) == last.maxlen:
                found = None
            last.append(found)
        return found

    return spoil_some


class DamageRun:
    """Side a writes to side b; reads of host memory at addresses in ``spoiled`` meet a fault.

    Parameters
    ----------
    message : int
        Bytes of a message.
    inline : bool
        The data is copied when it is posted; the buffer changes soon afterwards.

    Attributes
    ----------
    spoiled : dict of side to callable(address) → str or None
    """

    def __init__(self, dut, message=MESSAGE, inline=False):
        self.message, self.inline, self.length = message, inline, QPS * MESSAGES * message
        self.rng = random.Random(bench_seed())
        config = EnvConfig(a_to_b=LINK, b_to_a=LINK, host=HostConfig(read_latency_ns=300))
        self.pair = RtlPair(dut, config, ContextConfig(probe_timeout_ns=25_000, node_age_ns=300), seed=bench_seed(),
                            judged=False)
        self.ends, self.agents, self.spoiled, self.done = {}, {}, {}, False

    async def start(self):
        pair = self.pair
        await pair.start()
        for side in "ab":
            self.ends[side] = await bridge(Endpoint)(pair.contexts[side], self.length, qps=QPS,
                                                     window=MESSAGES, inline=self.message * self.inline)
        for side, other in ("ab", "ba"):
            await bridge(self.ends[side].connect)(self.ends[other].connections, path_mtu=MTU.MTU_256, timeout=5,
                                                  retry_cnt=5)
        for side in "ab":
            host = pair.env.host(side)
            host.strict = False
            self.agents[side] = FaultAgent(host, self.rng, lambda at, side=side: self.spoiled.get(
                side, lambda _: None)(at))

    def bad(self, share):
        """Return corruption or an error with probability ``share``, otherwise None."""
        return self.rng.choice([DAMAGED, *ENDS_BADLY]) if self.rng.random() < share else None

    def in_ring(self, side, ring, share):
        """Return a fault function for the entries of a ring, with probability ``share``."""
        buffer = self.pair.contexts[side].rings[ring].buffer
        return lambda at: self.bad(share) if 0 <= at - buffer.physical(0) < buffer.size else None

    async def write(self):
        """Write on all QPs of a; return the statuses by number of the QP."""
        self.done = False
        statuses, _ = await gather(bridge(self._write)(), bridge(self._serve)())
        return statuses

    def _write(self):
        end, offer, message_bytes = self.ends["a"], self.ends["b"].offer, self.message
        flags = SendFlags.SIGNALED | (SendFlags.INLINE if self.inline else 0)
        self.data = self.rng.randbytes(self.length)
        end.mr.write(self.data)
        number = {qp.qp_num: k for k, qp in enumerate(end.qps)}
        statuses = {k: [] for k in range(QPS)}
        for message in range(MESSAGES):
            for k, qp in enumerate(end.qps):
                at = (message * QPS + k) * message_bytes
                wr = SendWR(wr_id=message, sg=[SGE(end.mr.buf + at, message_bytes, end.mr.lkey)],
                            opcode=WROpcode.RDMA_WRITE, send_flags=flags)
                wr.set_wr_rdma(offer.rkey, offer.va + at)
                qp.post_send(wr)
                if self.inline:
                    end.mr.write(bytes(message_bytes), offset=at)
        for _ in range(QPS * MESSAGES):
            for wc in end.cq.wait(1, SILENCE_NS):
                statuses[number[wc.qp_num]].append(wc.status)
        self.done = True
        return statuses

    def _serve(self):
        context = self.pair.contexts["b"]
        while not self.done:
            context.progress()
            context.wait(SERVICE_NS)

    def check_bytes(self, k):
        """Check that the data of QP ``k`` arrived."""
        for message in range(MESSAGES):
            at = (message * QPS + k) * self.message
            assert self.ends["b"].mr.read(self.message, at) == self.data[at:at + self.message], (k, message)

    async def close(self):
        self.spoiled.clear()
        for side in "ab":
            blocks = await bridge(self._close)(side)
            assert not missing_blocks(blocks), blocks
            self.pair.guards[side].check()
            assert not self.pair.env.host(side).memory.pages
        self.pair.env.finish()

    def _close(self, side):
        self.ends[side].close()
        blocks = self.pair.contexts[side].knitting.check()
        self.pair.contexts[side].close()
        return blocks


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def descriptors(dut):
    """Descriptors of data, retransmissions and control frames, on both sides, are repeated."""
    await damaged_descriptors(DamageRun(dut), 3)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def inline_descriptors(dut):
    """A message takes two entries, each of which may be bad, or both: no message gets the bytes of another."""
    await damaged_descriptors(DamageRun(dut, abi.INLINE_MAX, inline=True), 30)


async def damaged_descriptors(run, least):
    await run.start()
    rings = [(side, ring) for side in "ab" for ring in (abi.Ring.SEND, abi.Ring.RETRANSMIT, abi.Ring.NIC_TX)]
    for side in "ab":
        spoil = [run.in_ring(side, ring, 0.15) for which, ring in rings if which == side]
        run.spoiled[side] = lambda at, spoil=spoil: next(filter(None, (bad(at) for bad in spoil)), None)
    injected = Counter()
    while injected.total() < least:      # a read fetches many descriptors: there may be few reads
        statuses = await run.write()
        assert statuses == {k: [WCStatus.SUCCESS] * MESSAGES for k in range(QPS)}, statuses
        for k in range(QPS):
            run.check_bytes(k)
        injected = sum((agent.injected for agent in run.agents.values()), Counter())
    await run.close()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def page_lists(dut):
    """A bad page list is not written to the page table; the registration fails and leaves no state."""
    run = DamageRun(dut)
    await run.start()
    context, pd = run.pair.contexts["a"], run.ends["a"].pd
    free, pages = context.pte_ranges.free_total, run.pair.env.host("a").memory
    found, call = Counter(), context.commands.call

    def watched(opcode, **fields):
        if opcode is abi.CommandOpcode.PAGE_TABLE_WRITE:
            start, end = fields["address"], fields["address"] + fields["count"] * abi.PTE_BYTES
            run.spoiled["a"] = lambda at: run.bad(1) if start <= at < end else None
        try:
            return call(opcode, **fields)
        finally:
            run.spoiled.clear()

    def register():
        before = pages.pages
        context.commands.call = watched
        for _ in range(30):
            try:
                MR(pd, 40 * abi.PAGE_4K, AccessFlag.LOCAL_WRITE)
            except CommandError as error:
                found[error.status] += 1
        context.commands.call = call
        assert (context.pte_ranges.free_total, pages.pages) == (free, before)
        MR(pd, 40 * abi.PAGE_4K, AccessFlag.LOCAL_WRITE).close()

    await bridge(register)()
    assert found[abi.CommandStatus.DMA_ERROR] > 0 and found.total() == 30, found
    assert (await run.write())[SICK] == [WCStatus.SUCCESS] * MESSAGES
    await run.close()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def nodes(dut):
    """With bad nodes of one QP, the QP changes to ERR on both sides; the others continue."""
    run = DamageRun(dut)
    await run.start()
    sick = run.ends["b"].qps[SICK]
    sick.post_recv(RecvWR(wr_id=77))
    run.spoiled["b"] = lambda at: run.bad(1) if any(
        node.line == at // abi.BLOCK_BYTES for node in sick.receiver.holes.nodes) else None
    statuses = await run.write()
    while run.agents["b"].injected.total() == 0:     # no packet of the QP was lost
        statuses = await run.write()
    assert sick.qp_state is QPState.ERR and sick.receiver.broken in (abi.Reason.BAD_NODE, abi.Reason.DMA_ERROR)
    assert [wc.status for wc in run.ends["b"].cq.take(9)[1]] == [WCStatus.WR_FLUSH_ERR]
    ended = Counter(statuses[SICK])
    assert set(ended) <= {WCStatus.SUCCESS, WCStatus.RETRY_EXC_ERR, WCStatus.WR_FLUSH_ERR}, ended
    assert ended[WCStatus.RETRY_EXC_ERR] == 1, ended
    for k in set(range(QPS)) - {SICK}:
        assert statuses[k] == [WCStatus.SUCCESS] * MESSAGES, (k, statuses[k])
        run.check_bytes(k)
    await run.close()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def commands(dut):
    """With occasional faults, commands are repeated. With permanent faults, the card fails and reports it."""
    run = DamageRun(dut)
    await run.start()
    context, end = run.pair.contexts["a"], run.ends["a"]

    def now_and_then():
        run.spoiled["a"] = twice_at_most(run.in_ring("a", abi.Ring.COMMAND, 0.3))
        for number in range(200):
            if number >= 12 and context.commands.repeated:
                break
            MR(end.pd, abi.PAGE_4K, AccessFlag.LOCAL_WRITE).close()
        assert context.commands.repeated > 0 and context.engine.fatal is None

    def always():
        run.spoiled["a"] = run.in_ring("a", abi.Ring.COMMAND, 1)
        try:
            MR(end.pd, abi.PAGE_4K, AccessFlag.LOCAL_WRITE)
        except DeviceFatal as error:
            found = str(error)
        else:
            found = None
        event = context.get_async_event(0)
        assert event.event_type is EventType.DEVICE_FATAL and event.reason in found
        assert "could not read a command" in event.reason
        assert all(qp.qp_state is QPState.ERR for qp in end.qps)

    await bridge(now_and_then)()
    run.spoiled.clear()
    assert (await run.write())[SICK] == [WCStatus.SUCCESS] * MESSAGES
    await bridge(always)()
    await run.close()
