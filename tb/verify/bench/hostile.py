"""Effect of attacks on an honest transfer: two cards under their drivers, and frames from outside at their MACs.

Card A writes to card B over a link limited to 50 Gb/s. The attacker's frames arrive at 45 Gb/s, so that the MAC of
100 Gb/s carries both. A second QP of card B has the attacker as its peer and has acknowledged all packets sent to it.

- ``hostile_goodput_kept_<kind>``: goodput from the first packet in host memory to the last, relative to the goodput
  without an attack, which is measured before the first attack and after the last.
- ``hostile_false_completions``: completions whose data was missing, or that belong to no posted request.
- ``hostile_wrong_bytes``: wrong bytes in the registered memory of both hosts, and DMA writes outside allowed memory.
- ``hostile_objects_grown``: collections of both drivers that an attack made longer, and knitting blocks not freed.
"""

import random
from collections import Counter, deque

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather
from cocotb.utils import get_sim_time

from weft.driver.application.file_transfer import Endpoint
from weft.driver.device.device import DmaBuffer
from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import wire
from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.hostile.attacks import KINDS, Attacker, Mark
from weft.tb.sim.judge.growth import sizes
from weft.tb.sim.pair.pair import serve_until
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_cards import SIDES, run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.card_device import CardDevice
from weft.tb.verify.bench.meters import meter_placed

PRESET = "test"
HONEST_GBPS, ATTACK_GBPS = 50, 45
PMTU, MESSAGE_BYTES, WINDOW = 1024, 16 << 10, 8
PAYLOAD, GUARD = 256 << 10, 4096      # bytes of a transfer, and of unused memory before and after its destination
KEPT = 0.95
SILENCE_NS, LOOK_NS, SETTLE_NS = 1_000_000, 2_000, 20_000
POOL = 64                              # different frames of an attack, sent cyclically
GROWTH = 64                            # allowed growth of a collection in entries, caused by any traffic


class Battle:
    """Both cards, the honest pair, the victim, and the findings."""

    def __init__(self, pair, payload, rng):
        self.pair, self.payload, self.rng = pair, payload, rng
        self.ends, self.over = {}, False
        self.false = self.wrong = self.grown = 0
        self.goodput, self.drops = {}, {}

    async def open(self):
        for side in SIDES:
            self.ends[side] = await bridge(Endpoint)(self.pair.contexts[side], self.payload + 2 * GUARD, window=WINDOW)
        await bridge(self._connect)()

    def _connect(self):
        me, you = self.ends.values()
        for end, peer in ((me, you), (you, me)):
            end.connect(peer.connections, path_mtu=MTU[f"MTU_{PMTU}"])
        self.cq = CQ(you.context, 64)
        self.victim = QP(you.pd, rc_init_attr(self.cq))
        self.victim.connect(me.connections[0], path_mtu=MTU[f"MTU_{PMTU}"])

    def _attacker(self, side):
        """Return an attacker that knows everything about the honest QP of a side, and is the victim's peer."""
        end, queue = self.ends[side], self.ends["a"].qps[0].sender.queue
        psns = range(queue.next_psn, queue.next_psn + self.payload // PMTU)
        victim = Mark(side, self.victim.qp_num, range(self.victim.attr.rq_psn - 100, self.victim.attr.rq_psn),
                      end.mr.rkey, end.mr.buf)
        mark = Mark(side, end.qps[0].qp_num, psns, end.mr.rkey, end.mr.buf + GUARD)
        return Attacker(self.rng, mark, victim)

    async def _attack(self, kind, side):
        """Send frames to the MAC of a side until the transfer is over; return their number."""
        attacker, mac = self._attacker(side), self.pair.env.sides[side].mac_rx
        pool = [attacker.draw(kind) for _ in range(POOL)]
        due, number = get_sim_time("ns"), 0
        while not self.over:
            frame = pool[number % POOL]
            mac.receive(frame)
            number += 1
            due += 8 * (len(frame) + wire.LINE_OVERHEAD_BYTES) / ATTACK_GBPS
            if (wait := due - get_sim_time("ns")) > 0:
                await Timer(round(1000 * wait), "ps")
        return number

    def _send(self, data):
        """Run the program of card A: at each completion, the data must be at its destination."""
        me, you = self.ends["a"], self.ends["b"]
        todo, posted = deque(range(0, self.payload, MESSAGE_BYTES)), {}
        while todo or posted:
            while todo and len(posted) < WINDOW:
                at = todo.popleft()
                length = min(MESSAGE_BYTES, self.payload - at)
                sge = SGE(me.mr.buf + GUARD + at, length, me.mr.lkey)
                me.qps[0].post_send(SendWR(at, WROpcode.RDMA_WRITE, sg=[sge], rkey=you.mr.rkey,
                                           remote_addr=you.mr.buf + GUARD + at))
                posted[at] = length
            for wc in me.cq.wait(16, SILENCE_NS):
                assert wc.status is WCStatus.SUCCESS, wc
                length = posted.pop(wc.wr_id, 0)
                there = you.mr.read(length, GUARD + wc.wr_id) == data[wc.wr_id:wc.wr_id + length]
                self.false += not (length and there)
        self.over = True

    async def transfer(self, name, kind=None):
        """Run a transfer, with an attack unless ``kind`` is None."""
        you, self.over = self.ends["b"], False
        data = self.rng.randbytes(self.payload)
        self.ends["a"].mr.write(data, offset=GUARD)
        you.mr.write(bytes(self.payload), offset=GUARD)
        placed, watch = meter_placed(self.pair.env.host("b"), PMTU)
        watch(you.mr.buffer, GUARD, self.payload)
        before, counted = await bridge(self._kept)(), await bridge(self._counters)()
        attacks = {side: cocotb.start_soon(self._attack(kind, side)) for side in (KINDS[kind][0] if kind else ())}
        try:
            await gather(bridge(self._send)(data), bridge(serve_until)(lambda: self.over, you.context, LOOK_NS))
        finally:
            self.over = True
        sent = {side: await task for side, task in attacks.items()}
        await self.pair.drain()
        await self._settle()
        assert placed.total >= self.payload
        self.goodput[name] = placed.gbps(0, get_sim_time("ns"))
        self._judge(data, sent, await bridge(self._kept)(), before)
        if kind:
            counters = await bridge(self._counters)()
            self._check_attack(kind, sent, {side: counters[side] - counted[side] for side in SIDES})

    async def _settle(self):
        for _ in range(SETTLE_NS // LOOK_NS):
            await Timer(LOOK_NS, "ns")
            for side in SIDES:
                await bridge(self.pair.contexts[side].progress)()

    def _kept(self):
        return {side: sizes(context, (CardDevice, DmaBuffer)) for side, context in self.pair.contexts.items()}

    def _counters(self):
        return {side: Counter(context.statistics()) for side, context in self.pair.contexts.items()}

    def _judge(self, data, sent, after, before):
        whole = bytes(GUARD) + data + bytes(GUARD)
        for side in SIDES:
            found = self.ends[side].mr.read(len(whole), 0)
            self.wrong += sum(a != b for a, b in zip(whole, found, strict=True)) if whole != found else 0
            self.wrong += len(self.pair.guards[side].violations)
            self.false += len(self.ends[side].cq.take(64)[1])
            if sent:
                self.grown += sum(count > before[side][name] + GROWTH for name, count in after[side].items())
        self.false += len(self.cq.take(64)[1])

    def _check_attack(self, kind, sent, counted):
        """Assert that the attack took place and that all its frames were dropped for its reasons or received raw."""
        self.drops[kind] = {side: {name: n for name, n in counted[side].items() if n and name.startswith("drop_")}
                            for side in SIDES}
        for side, number in sent.items():
            drops = sum(counted[side][f"drop_{reason}"] for reason in KINDS[kind][1])
            raw = counted[side]["rx_raw_frames"] if kind in ("random_bytes", "runts") else 0
            assert drops + raw >= number > 100, f"{kind} at {side}: {number} frames, refused {drops}, raw {raw}"

    async def close(self):
        await bridge(self.victim.close)()
        await bridge(self.cq.close)()
        for side in SIDES:
            await bridge(self.ends[side].close)()
            blocks = self.pair.contexts[side].knitting.check()
            self.grown += sum(blocks.values()) - blocks["free"]


@cocotb.test()
async def battle(dut):
    settings = given()
    wide, narrow = LinkConfig(delay_ns=0), LinkConfig(delay_ns=0, rate_gbps=HONEST_GBPS)
    pair = RtlPair(dut, EnvConfig(narrow, wide), ContextConfig(ring_log2=8), seed=bench_seed(), judged=False)
    await pair.start()
    fight = Battle(pair, settings["payload"], random.Random(f"{bench_seed()}/attack"))
    await fight.open()
    kinds = settings["kinds"]
    turns = [("before", None), *((kind, kind) for kind in kinds), ("after", None)]
    for number, (name, kind) in enumerate(turns):
        report_progress(settings["progress"], f"beside {kind or 'no attack'}", number, len(turns))
        await fight.transfer(name, kind)
        dut._log.info("%s: %.2f Gb/s, %s", name, fight.goodput[name], fight.drops.get(kind))
    await fight.close()
    pair.env.finish()
    leave({name: getattr(fight, name) for name in ("goodput", "drops", "false", "wrong", "grown")})


def fight_all(kinds, progress, *, payload=PAYLOAD, seed=1):
    """Run the bench with these kinds of attack; return the findings."""
    settings = {"kinds": list(kinds), "payload": payload, "progress": str(progress)}
    return run_cards(preset(PRESET), __file__, settings, seed=seed)


def rows(found):
    """Yield the rows of the report."""
    goodput = found["goodput"]
    alone = (goodput["before"] + goodput["after"]) / 2
    limit = HONEST_GBPS * PMTU / (wire.header_bytes(wire.Opcode.WRITE_ONLY) + PMTU + wire.ICRC_BYTES
                                  + wire.LINE_OVERHEAD_BYTES)
    yield Row("hostile_goodput_alone_gbps", "Gb/s", alone, at_least=KEPT * limit)
    for kind in found["drops"]:
        yield Row(f"hostile_goodput_kept_{kind}", "of no attack", goodput[kind] / alone, at_least=KEPT)
    yield Row("hostile_goodput_kept_min", "of no attack", min(goodput[kind] for kind in found["drops"]) / alone,
              at_least=KEPT)
    for name, key in (("false_completions", "false"), ("wrong_bytes", "wrong"), ("objects_grown", "grown")):
        yield Row(f"hostile_{name}", "", found[key], at_most=0)


def measure(progress):
    """Return the rows of all kinds."""
    return list(rows(fight_all(KINDS, progress)))
