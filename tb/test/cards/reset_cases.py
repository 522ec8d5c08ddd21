"""A card is reset during traffic and brought up again by its driver; the next transfer succeeds."""

import random

import cocotb
from cocotb.task import bridge, resume
from cocotb.triggers import gather

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import MTU, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi
from weft.model.impairments import FrameKind, LinkConfig, frame_kind
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.judge.scoreboard import Scoreboard
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig
from weft.tb.sim.pcie.outage import msix_table, reset_function

QPS, LENGTH, MESSAGE = 2, 36_000, 3_000
PMTU = MTU.MTU_256
LOSSY = LinkConfig(delay_ns=3_000, loss=0.1)
SILENCE_NS, SERVICE_NS = 1_000_000, 1_000
QUICK = {"path_mtu": PMTU, "timeout": 3, "retry_cnt": 2}    # 33 µs, to fail soon
OLD_INCARNATION = {abi.Reason.UNKNOWN_QP, abi.Reason.STALE_GENERATION}


class ResetRun:
    """Both sides write to each other; the card of ``victim`` is reset; both QPs restart; both sides write again.

    Parameters
    ----------
    dut
    victim : str
        Side of the card that is reset.
    due : callable(ResetRun)
        Polled by the victim's driver: True when the reset is due.
    before : callable(ResetRun), optional
        Called by the victim's driver before it resets the card.
    """

    def __init__(self, dut, victim, due, before=None):
        self.victim, self.peer, self.due = victim, "ab".replace(victim, ""), due
        self.before = before or (lambda run: None)
        self.rng = random.Random(bench_seed())
        config = EnvConfig(a_to_b=LOSSY, b_to_a=LOSSY, host=HostConfig(read_latency_ns=1_500, read_jitter=0.5))
        context = ContextConfig(probe_timeout_ns=25_000, node_age_ns=300, silence_ns=self.silence_ns)
        self.pair = RtlPair(dut, config, context, seed=bench_seed())
        self.ends, self.completions, self.again = {}, {"a": [], "b": []}, []
        self.posted, self.stopping, self.last_words = {}, False, False
        self.busy, self.sent, self.done, self.arrived_late = {}, {}, set(), []

    silence_ns = 10_000_000

    @property
    def context(self):
        return self.pair.contexts[self.victim]

    @property
    def end(self):
        return self.ends[self.victim]

    @property
    def node_reads(self):
        """Number of outstanding reads of knitting blocks in the victim's memory."""
        extents = self.context.knitting.extents
        lines = [address // abi.BLOCK_BYTES for address in self.pair.env.host(self.victim).reading]
        return sum(e.base <= line < e.base + e.blocks for line in lines for e in extents)

    @property
    def linked(self):
        return sum(len(qp.receiver.holes.nodes) for qp in self.end.qps)

    @property
    def peer_is_busy(self):
        """True if each QP of the peer has outstanding requests."""
        return all(qp.sender.outstanding > 1 for qp in self.ends[self.peer].qps)

    async def start(self):
        """Bring up both sides and connect them."""
        pair = self.pair
        await pair.start()
        self.table = await msix_table(pair.env.host(self.victim))
        for side in "ab":
            self.ends[side] = await bridge(Endpoint)(pair.contexts[side], LENGTH, qps=QPS, window=LENGTH // MESSAGE + 1)
        await pair.connect(self.ends, **QUICK)
        pair.env.link(f"{self.peer}_to_{self.victim}").arrival_watchers.append(self._keep)

    async def run(self):
        pair = self.pair
        await self.start()
        await gather(*(bridge(self._first_incarnation)(side) for side in "ab"))
        await self._between()
        await gather(*(bridge(self._second_incarnation)(side) for side in "ab"))
        for side, other in ("ab", "ba"):
            assert self.ends[other].mr.read(LENGTH // 2, LENGTH // 2) == self.sent[side], f"bytes from {side} differ"
        counters, blocks, complaints = await pair.close()
        assert not complaints, complaints
        assert not any(map(missing_blocks, blocks.values())), blocks
        return counters

    def _keep(self, frame):
        if frame_kind(frame) is FrameKind.RETX:
            self.again.append(frame)

    # The following methods run in the thread of a side.

    def _bring_back(self):
        self.context.reset()

    def _first_incarnation(self, side):
        """Write from all QPs to all QPs; the victim's card is reset, the peer's requests fail."""
        end, context = self.ends[side], self.pair.contexts[side]
        end.mr.write(self.rng.randbytes(LENGTH))
        self.posted[side] = self._post(side, LENGTH) + self._post(side, LENGTH)
        if side == self.victim:
            context.run_until(lambda: self._keep_sending(side) or self.peer_is_busy and self.due(self), SILENCE_NS)
            self.stopping = True
            self.busy = {"node reads": self.node_reads, "linked": self.linked,
                         "reads": len(self.pair.env.host(side).reading)}
            self.before(self)
            self._bring_back()
        while len(self.completions[side]) < self.posted[side]:
            self.completions[side] += end.cq.wait(16, SILENCE_NS)
            self._keep_sending(side)
        assert all(qp.qp_state is QPState.ERR for qp in end.qps), f"{side}: {[qp.qp_state for qp in end.qps]}"

    def _keep_sending(self, side):
        """Until the reset, post again when few requests are left, because the reset may be due late.

        After the reset the peer posts once more to each QP, because all its acknowledgements may be outstanding.
        """
        self.completions[side] += self.ends[side].cq.poll(16)[1]
        left = self.posted[side] - len(self.completions[side])
        if not self.stopping and left <= LENGTH // MESSAGE // 2:
            self.posted[side] += self._post(side, LENGTH)
        if self.stopping and side == self.peer and not self.last_words:
            self.last_words = True
            self.posted[side] += self._post(side, QPS * MESSAGE)

    async def _between(self):
        """Check the completions, create new incarnations of the QPs, and replay the peer's last retransmissions."""
        pair, victim, peer = self.pair, self.victim, self.peer
        of_victim, of_peer = ([wc.status for wc in self.completions[side]] for side in (victim, peer))
        assert WCStatus.WR_FLUSH_ERR in of_victim, "the reset came too late"
        assert of_peer.count(WCStatus.RETRY_EXC_ERR) == QPS, f"the peer was notified of {set(of_peer)}"
        places = [qp.index for qp in self.end.qps]
        for side in "ab":
            await bridge(self._reset_qps)(side)
        for side, other in ("ab", "ba"):
            await bridge(self.ends[side].connect)(self.ends[other].connections, path_mtu=PMTU)
        assert places == [qp.index for qp in self.end.qps]
        assert not self.context.rings[abi.Ring.META_REPORT].prod, "a report of the old incarnation came after the reset"
        # The peer's card keeps its counters: only the card that was reset gets a new scoreboard.
        del pair.scoreboards[peer]
        board = pair.scoreboards[victim] = Scoreboard(
            self.context, pair.env.host(victim), pair.env.link(f"{peer}_to_{victim}"), pair.card.window_bits)
        board.forbidden -= OLD_INCARNATION
        for qp in self.end.qps:
            board.follow(qp)
        self.arrived_late = self.again[-20:]
        for frame in self.arrived_late:
            pair.env.sides[victim].mac_rx.receive(frame)

    def _reset_qps(self, side):
        for qp in self.ends[side].qps:
            qp.reset()

    def _second_incarnation(self, side):
        """Write the first half of the memory to the other side's second half."""
        end, context = self.ends[side], self.pair.contexts[side]
        data = self.sent[side] = self.rng.randbytes(LENGTH // 2)
        end.mr.write(data)
        count = self._post(side, LENGTH // 2)
        for _ in range(count):
            for wc in end.cq.wait(1, SILENCE_NS):
                assert wc.status is WCStatus.SUCCESS, wc
        self.done.add(side)
        while self.done < {"a", "b"}:
            context.progress()
            context.wait(SERVICE_NS)
        context.progress()

    def _post(self, side, length):
        """Post writes of ``length`` bytes in all over all QPs; return their number."""
        end, offer = self.ends[side], self.ends["ab".replace(side, "")].offer
        starts = range(0, length, MESSAGE)
        for k, start in enumerate(starts):
            wr = SendWR(wr_id=k, sg=[SGE(end.mr.buf + start, MESSAGE, end.mr.lkey)], opcode=WROpcode.RDMA_WRITE,
                        send_flags=SendFlags.SIGNALED)
            wr.set_wr_rdma(offer.rkey, offer.va + LENGTH - length + start)
            end.qps[k % QPS].post_send(wr)
        return len(starts)


def nodes_are_fetched(run):
    """Return True if nodes are linked, a node and payload are being read, and the peer has retransmitted."""
    return run.linked > 2 and run.node_reads and len(run.again) > 2


def payload_is_read(run):
    """Return True if the card sends while nodes are linked on the other side."""
    return len(run.pair.env.host(run.victim).reading) > 3 and len(run.again) > 2


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def nodes_in_flight(dut):
    """Reset with nodes linked and outstanding reads of nodes."""
    run = ResetRun(dut, "b", nodes_are_fetched)
    counters = await run.run()
    assert run.busy["node reads"] and run.busy["linked"], run.busy
    assert counters["b"]["drop_stale_generation"] >= len(run.arrived_late) > 0
    run.pair.scoreboards["b"].require("loss")


@resume
async def reset_by_host(run):
    """Reset the victim's function by its host, at once; all outstanding work ends."""
    run.cut_off = await reset_function(run.pair.env.host(run.victim), run.table)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def function_reset(dut):
    """Function-level reset with outstanding payload, descriptors and frames.

    The card becomes idle by itself and reports it; its driver brings it up as after its own reset.
    """
    run = ResetRun(dut, "a", payload_is_read, reset_by_host)
    await run.run()
    assert run.cut_off, "no read was cut off"


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def payload_in_flight(dut):
    """Reset with outstanding payload, descriptors and frames."""
    run = ResetRun(dut, "a", payload_is_read)
    counters = await run.run()
    assert run.busy["reads"] > 3, run.busy
    run.pair.scoreboards["a"].require("loss")
    assert counters["a"]["drop_stale_generation"] >= len(run.arrived_late) > 0
