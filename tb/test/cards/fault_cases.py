"""The host of a card misbehaves: the affected QP is notified, all others continue."""

import random
from collections import Counter

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import MTU, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.pair.pair import LINGER_NS
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.faults import ENDS_BADLY, HARMLESS, FaultAgent
from weft.tb.sim.pcie.host import HostConfig

QPS, MESSAGES, MESSAGE = 4, 4, 3_000
LENGTH = QPS * MESSAGES * MESSAGE
BAD = (0, 2)               # QPs with a message that cannot be read
AT = 2                     # that message
ALONG = 1                  # a QP with faults in its payload reads that the card recovers from
LINE = 64
SILENCE_NS, SERVICE_NS = 1_000_000, 1_000


class PayloadRun:
    """A writes from memory of which some cannot be read.

    Attributes
    ----------
    agent : FaultAgent
    ended : dict of QPN to list of WCStatus
    """

    def __init__(self, dut):
        self.rng = random.Random(bench_seed())
        link = LinkConfig(delay_ns=500)
        config = EnvConfig(a_to_b=link, b_to_a=link, host=HostConfig(read_latency_ns=500, read_jitter=0.3))
        self.pair = RtlPair(dut, config, ContextConfig(probe_timeout_ns=25_000), seed=bench_seed(), judged=False)
        self.ends, self.ended, self.done, self.faults = {}, {}, False, {}

    async def run(self):
        pair = self.pair
        await pair.start()
        for side in "ab":
            self.ends[side] = await bridge(Endpoint)(pair.contexts[side], LENGTH, qps=QPS, window=MESSAGES)
        for side, other in ("ab", "ba"):
            await bridge(self.ends[side].connect)(self.ends[other].connections, path_mtu=MTU.MTU_1024, timeout=3,
                                                  retry_cnt=2)
        host, end = pair.env.host("a"), self.ends["a"]
        host.strict = False
        self.data = self.rng.randbytes(LENGTH)
        end.mr.write(self.data)
        for qp in BAD:
            self._spoil(self._place(qp, AT), ENDS_BADLY)
        for message in range(MESSAGES):
            self._spoil(self._place(ALONG, message), HARMLESS)
        self.agent = FaultAgent(host, self.rng, lambda address: self.faults.get(address // LINE))
        await gather(bridge(self._write)(), bridge(self._serve)())
        self.check()
        self.agent.remove()
        host.strict = True
        host.complaints.clear()
        blocks = [await bridge(self._close)(side) for side in "ab"]
        assert not any(map(missing_blocks, blocks)), blocks
        await Timer(LINGER_NS, "ns")         # a card that still writes would find no memory
        assert not any(pair.env.host(side).memory.pages for side in "ab")
        pair.env.finish()

    @staticmethod
    def _place(qp, message):
        """Return the offset of a message's source and destination."""
        return (message * QPS + qp) * MESSAGE

    def _spoil(self, offset, kinds):
        """Inject a fault into reads that begin in a message's lines, except the lines at its ends, which it shares."""
        buffer, kind = self.ends["a"].mr.buffer, self.rng.choice(kinds)
        for at in range(offset + LINE, offset + MESSAGE - LINE, LINE):
            self.faults[buffer.physical(at) // LINE] = kind

    def _write(self):
        end, offer = self.ends["a"], self.ends["b"].offer
        self.ended = {qp.qp_num: [] for qp in end.qps}
        for message in range(MESSAGES):
            for number, qp in enumerate(end.qps):
                at = self._place(number, message)
                wr = SendWR(wr_id=message, sg=[SGE(end.mr.buf + at, MESSAGE, end.mr.lkey)],
                            opcode=WROpcode.RDMA_WRITE, send_flags=SendFlags.SIGNALED)
                wr.set_wr_rdma(offer.rkey, offer.va + at)
                qp.post_send(wr)
        for _ in range(QPS * MESSAGES):
            for wc in end.cq.wait(1, SILENCE_NS):
                self.ended[wc.qp_num].append(wc.status)
        self.done = True

    def _serve(self):
        context = self.pair.contexts["b"]
        while not self.done:
            context.progress()
            context.wait(SERVICE_NS)

    def _close(self, side):
        self.ends[side].close()
        blocks = self.pair.contexts[side].knitting.check()
        self.pair.contexts[side].close()
        return blocks

    def check(self):
        for number, qp in enumerate(self.ends["a"].qps):
            ended = self.ended[qp.qp_num]
            good = ended.index(WCStatus.LOC_PROT_ERR) if number in BAD else MESSAGES
            assert ended[:good] == [WCStatus.SUCCESS] * good, (number, ended)
            assert ended[good + 1:] == [WCStatus.WR_FLUSH_ERR] * (MESSAGES - good - 1), (number, ended)
            assert qp.qp_state is (QPState.ERR if number in BAD else QPState.RTS)
            assert good == (AT if number in BAD else MESSAGES), (number, ended)
            for message in range(good):
                at = self._place(number, message)
                assert self.ends["b"].mr.read(MESSAGE, at) == self.data[at:at + MESSAGE], (number, message)


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def payload(dut):
    run = PayloadRun(dut)
    await run.run()
    injected = Counter(run.agent.injected)
    assert sum(injected[kind] for kind in ENDS_BADLY) >= len(BAD) and sum(injected[kind] for kind in HARMLESS), injected
