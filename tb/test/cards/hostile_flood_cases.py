"""More bad input than the driver processes, back to back: every frame is accounted for, and the data arrives."""

import random

import cocotb
from cocotb.task import bridge

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.hdl.contract import abi, wire
from weft.hdl.contract.wire import Opcode
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.hostile.fuzzed_frames import edit, seal
from weft.tb.test.cards.hostile_frames import Target, data_frame
from weft.tb.test.cards.hostile_pair import HostilePair
from weft.tb.test.cards.hostile_verbs_cases import WRITE

FILE_BYTES = 50_000
TIMEOUT_NS = 4_000_000
REPORT_LOG2, NIC_LOG2 = 5, 4    # more reports than the messages of the file, and than all other reports in that time
FLOOD = 220               # more than the reports, headers and frames that fit into the card
FUZZ_ROUNDS, FUZZ_FRAMES = 8, 60


class Flood:
    """Side B."""

    def __init__(self, pair, rng):
        self.pair, self.rng, self.context = pair, rng, pair.contexts["b"]
        self.endpoint = Endpoint(self.context, FILE_BYTES)
        self.mr = MR(self.endpoint.pd, 3 * abi.PAGE_4K, WRITE)
        cq = CQ(self.context, 64)
        self.victim = QP(self.endpoint.pd, rc_init_attr(cq, max_send_wr=4))
        pair.spy(self.victim)

    def target(self):
        """Return the victim with a PSN that it has acknowledged already."""
        return Target(self.victim.qp_num, (self.victim.attr.rq_psn - 5) % (1 << 24),
                      self.mr.rkey, self.mr.buf, self.mr.length)

    def counted(self):
        counters = self.context.statistics()
        return {name: counters[name] for name in counters if name.startswith(("rx_", "drop_"))}

    def refused(self, quiet):
        """Send bad packets while the driver does not poll: it gets one report; all are counted, and none stalls.

        Unless ``quiet``, a transfer runs at the same time, whose reports may fill half of the ring: then it gets none.
        """
        pair = self.pair
        self.context.progress()
        pair.take_errors("b")
        pair.new_drops("b")
        before = self.context.statistics()["reports_coalesced"]
        pair.inject("b", [data_frame(self.target(), rkey=self.mr.rkey ^ 1)] * FLOOD)
        coalesced = self.context.statistics()["reports_coalesced"] - before    # commands still work
        assert pair.new_drops("b") == {"bad_key": FLOOD}
        reports = len(pair.take_errors("b"))
        assert reports + coalesced == FLOOD and (reports == 1 if quiet else reports <= 1), (reports, coalesced)

    def mutated(self):
        """Return a frame with one to three errors, mostly with a valid ICRC."""
        rng, target = self.rng, self.target()
        opcode = rng.choice([Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM, Opcode.RETX_WRITE, Opcode.RETX_WRITE_IMM])
        frame = data_frame(target, opcode=opcode, payload=rng.randbytes(rng.choice([0, 1, 4, 60, 64, 500, 4096])))
        free = {wire.ETH: ("ethertype",),
                wire.IPV4: ("version", "ihl", "tos", "total_length", "flags", "fragment", "ttl", "protocol",
                            "checksum"),
                wire.UDP: ("dport", "length"), wire.BTH: ("opcode", "pad_count", "version", "pkey", "dest_qp"),
                wire.RETH: ("va", "rkey", "dma_length")}
        offset = {}
        for layout in free:
            offset[layout] = sum(h.size_bytes for h in offset)
        for _ in range(rng.randint(1, 3)):
            layout = rng.choice(list(free))
            name = rng.choice(free[layout])
            width, old = layout.by_name[name].width, vars(layout.unpack(frame[offset[layout]:]))[name]
            value = rng.choice([rng.getrandbits(width), old ^ 1 << rng.randrange(width), (old + 1) % (1 << width),
                                (old - 1) % (1 << width), 0, (1 << width) - 1])
            frame = edit(frame, layout, offset[layout], **{name: value})
        if rng.random() < 0.8:
            frame = seal(frame)
        if rng.random() < 0.1:
            frame = frame[:rng.randint(1, len(frame))]
        return frame

    def fuzz(self):
        pair = self.pair
        before, raw = self.counted(), len(pair.take_raw("b"))
        probes = self.context.engine.reports.counts["PROBE"]
        refused = 0
        for _ in range(FUZZ_ROUNDS):
            pair.inject("b", [self.mutated() for _ in range(FUZZ_FRAMES)])
            raw += len(pair.take_raw("b"))
            refused += len(pair.take_errors("b"))
            pair.guards["b"].check()
        for _ in range(20):     # frames that were still buffered
            pair.sleep(500)
            pair.take_errors("b")
        after = self.counted()
        new = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        probes = self.context.engine.reports.counts["PROBE"] - probes
        dropped = sum(number for name, number in new.items() if name.startswith("drop_"))
        ended = new.get("rx_packets", 0) + new.get("rx_raw_frames", 0) + dropped + probes
        assert new["rx_frames"] == ended, (new, probes)
        assert new["rx_frames"] >= FUZZ_ROUNDS * FUZZ_FRAMES and refused
        kinds = [name for name in new if name.startswith("drop_")]
        assert len(kinds) >= 8, kinds
        pair.env.dut._log.info("%s", new)


def side_b(pair, flood, sent):
    flood.refused(quiet=False)
    flood.fuzz()
    receive_file(flood.endpoint, timeout_ns=TIMEOUT_NS)
    pair.until("b", lambda: sent)
    flood.refused(quiet=True)
    assert flood.mr.read(flood.mr.length, 0) == bytes(flood.mr.length), "a refused frame changed the MR"
    pair.new_drops("b")


def side_a(endpoint, offer, sent):
    try:
        send_file(endpoint, offer, message_bytes=4096, timeout_ns=TIMEOUT_NS)
    finally:
        sent.append(True)


def connect(sender, flood):
    sender.connect(flood.endpoint.connections)
    flood.endpoint.connect(sender.connections)
    flood.victim.connect(sender.connections[0])
    post_receives(flood.endpoint)


def close(*endpoints):
    for endpoint in endpoints:
        endpoint.close()
        blocks = endpoint.context.knitting.check()
        assert blocks["free"] == sum(blocks.values()), blocks


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def flood(dut):
    rng = random.Random(bench_seed())
    depths = {abi.Ring.META_REPORT: REPORT_LOG2, abi.Ring.NIC_RX: NIC_LOG2}
    pair = HostilePair(dut, ContextConfig(ring_log2=depths, probe_timeout_ns=20_000))
    await pair.start()
    sender = await bridge(Endpoint)(pair.contexts["a"], FILE_BYTES)
    target = await bridge(Flood)(pair, rng)
    await bridge(connect)(sender, target)
    data, sent = rng.randbytes(FILE_BYTES), []
    sender.mr.write(data)
    sending = cocotb.start_soon(bridge(side_a)(sender, target.endpoint.offer, sent))
    await bridge(side_b)(pair, target, sent)
    await sending
    assert target.endpoint.mr.read(FILE_BYTES, 0) == data
    await bridge(close)(sender, target.endpoint)
    pair.finish()
