"""One run: lanes between two RTL cards, with the hazards of its plan."""

import random
import time
from collections import Counter

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather
from cocotb.utils import get_sim_time

from weft.driver.device.bringup import STATUS_IDLE
from weft.driver.device.capabilities import read_register
from weft.hdl.contract import wire
from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.hostile.unknown_peers import UnknownPeers
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.pair.rtl_network import RtlNetwork
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_cards import SIDES, run_cards
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.verify.soak import bins
from weft.tb.verify.soak.hazards import BadHost, take_away
from weft.tb.verify.soak.lane import FAILURES, FORGERIES, Lane
from weft.tb.verify.soak.plan import CARDS, CYCLES, draw

STEP_NS, REST_LOOKS, TIMEOUT_S = 1_000, 100, 3600
DRAIN = 0.8            # fraction of the cycles after which no new requests are posted
LATER = 2              # limit of the extension while no message has arrived, in multiples of the run
CALM_NS = 60_000       # of the knitting buffer
TICKETS = 256
STALL, STALLS_AT, STALLED_NS = 0.1, (0.1, 0.6), 60_000
FRAGILE = 0            # number of the lane that hazards make fail: the first


class Run:
    """Run of a :class:`~weft.tb.verify.soak.plan.Plan`; ``met`` has the counts of its bins."""

    def __init__(self, dut, plan):
        self.plan, self.rng, self.met = plan, random.Random(f"soak {plan.seed}"), Counter()
        settings = {"seed": plan.seed, "judged": False}
        self.pair = (RtlPair(dut, plan.env, plan.context, **settings) if plan.network is None else
                     RtlNetwork(dut, plan.env, plan.context, plan.network, **settings))
        self.finishing, self.done = False, set()
        self.outages, self.away = {}, set()       # planned outages by side; sides with an outage now

    async def run(self):
        plan, pair = self.plan, self.pair
        await pair.start()
        harm = FORGERIES if "hostile frames" in plan.hazards else FAILURES if "PCIe faults" in plan.hazards else None
        self.lanes = [Lane(number, pair.contexts, random.Random(f"{plan.seed}/lane {number}"), self.met,
                           eager=plan.eager, harm=harm if number == FRAGILE else None,
                           lifetime_ns=(lambda: self.rng.uniform(0.2, 1.8) * plan.lifetime_ns)
                           if number % 2 else lambda: None)
                      for number in range(plan.lanes)]
        self.end_ns = get_sim_time("ns") + plan.cycles * CLOCK_PERIOD_NS
        self._plan_outages()
        agents = [BadHost(pair.env.host(side), pair.contexts[side], self.lanes, side, self.rng) for side in SIDES
                  if "PCIe faults" in plan.hazards]
        for context in pair.contexts:
            context.knitting.calm_ns = CALM_NS
            self._set_generations(context)
        tasks = [bridge(self._serve)(side) for side in SIDES]
        if plan.rough:
            tasks.append(self._stall())
        unknown_peers = None
        if "hostile frames" in plan.hazards:
            victims, spared = self.lanes[:1], self.lanes[1:]      # the first is FRAGILE
            unknown_peers = UnknownPeers(pair.env, self.rng,
                                         victim=lambda side: next(self._numbers(victims, side), None),
                                         spared=lambda side: set(self._numbers(spared, side)))
            tasks.append(unknown_peers.run(lambda: self.finishing))
        await gather(*tasks)
        self._note_links(unknown_peers, agents)
        for side in SIDES:
            await bridge(self._close)(side)
            pair.guards[side].check()
        pair.env.finish()
        assert self._arrived(), "nothing arrived"

    @staticmethod
    def _numbers(lanes, side):
        return (lane.qps[side].qp_num for lane in lanes if side in lane.qps)

    def _arrived(self):
        """Return the number of messages that arrived over unharmed connections.

        Faults may delay all of them for most of a short run, which then continues until one arrives.
        """
        return sum(lane.completed for lane in self.lanes if not lane.fragile)

    async def _stall(self):
        """Stall the streams of both hard blocks at random, for a limited time because it slows the simulation down."""
        await Timer(self.rng.uniform(*STALLS_AT) * self.plan.cycles * CLOCK_PERIOD_NS, "ns", round_mode="round")
        blocks = [self.pair.env.sides[side].hard_block for side in SIDES]
        for block in blocks:
            block.stall(STALL, self.rng)
        await Timer(STALLED_NS, "ns")
        for block in blocks:
            block.stall_no_more()

    def _plan_outages(self):
        """Draw time, side and kind of the outages: one or two of each kind."""
        span = self.plan.cycles * CLOCK_PERIOD_NS
        due = [(get_sim_time("ns") + self.rng.uniform(0.1, 0.5) * span, self.rng.choice(SIDES), kind)
               for kind in self.plan.hazards if kind in bins.OUTAGES]
        self.outages = {side: sorted(each for each in due if each[1] == side) for side in SIDES}

    def _set_generations(self, context):
        """Set the generations of each index to values just before their wrap."""
        qps = context.qps
        generations = (1 << wire.QPN_BITS - qps.index_bits) - 1
        for index in range(2, min(64, qps.size)):
            qps._generations[index] = self.rng.choice([generations, 256]) - self.rng.randint(2, 4)

    def _serve(self, side):
        """Run the lanes of a side; this method and the following ones run in the thread of the side."""
        context, due = self.pair.contexts[side], self.outages[side]
        entries = CARDS[self.plan.card].cache_entries
        while True:
            now = get_sim_time("ns")
            span_ns = self.plan.cycles * CLOCK_PERIOD_NS
            if (not (self.finishing or self.away) and now >= self.end_ns - (1 - DRAIN) * span_ns
                    and (self._arrived() or now >= self.end_ns + LATER * span_ns)):
                self._finish()
            if due and now >= due[0][0]:
                self._take_away(side, due.pop(0)[2])
            for lane in self.lanes:
                lane.advance(side, now)
            context.progress()
            self._note(context, entries)
            if all(lane.closed for lane in self.lanes):
                break
            context.wait(STEP_NS)
        self.done.add(side)

    def _finish(self):
        self.finishing = True
        for lane in self.lanes:
            lane.finish()

    def _take_away(self, side, kind):
        if kind == bins.REMOVAL:
            self._finish()
        for lane in self.lanes:
            lane.excused = True
        began = get_sim_time("ns")
        self.away.add(side)
        take_away(self.pair.env, side, self.pair.contexts[side], kind)
        self.away.remove(side)
        self.end_ns += get_sim_time("ns") - began      # otherwise the outage could take up a short run
        for lane in self.lanes:
            lane.excuse()
        self.met[kind] += 1

    def _note(self, context, entries):
        lists = sum(bool(qp.receiver is not None and qp.receiver.holes.nodes) for qp in context.qps)
        self.met[bins.MANY_LISTS] += lists > entries
        sizes = {lane.mtu for lane in self.lanes if lane.qps}
        self.met["different path MTUs at once"] += len(sizes) > 2

    def _close(self, side):
        context = self.pair.contexts[side]
        blocks = context.knitting.check()
        assert not missing_blocks(blocks), f"{side}: {blocks}"
        assert context.pte_ranges.free_total == context.capabilities.max_pte
        if context.engine.fatal is None:
            self._check_rest(side, context.device)
            self.met["ticket wrap"] += context.statistics()["rx_packets"] // TICKETS
        self.met["extent added"] += context.knitting.counts["grown"] - 1
        self.met["extent given up"] += context.knitting.counts["shrunk"]
        context.close()
        assert not self.pair.env.host(side).memory.pages, f"{side}: memory was not given back"

    def _check_rest(self, side, device):
        """Assert that the card has no outstanding read, write or credit."""
        for _ in range(REST_LOOKS):
            if read_register(device, "status") & STATUS_IDLE:
                break
            device.wait(STEP_NS)
        else:
            raise AssertionError(f"the card of {side} does not come to rest")
        waiting = [tag for tag, read in enumerate(self.pair.env.host(side).device.active_request) if read is not None]
        assert not waiting, f"{side}: the hard block still waits for the reads with tags {waiting}"

    def _note_links(self, unknown_peers, agents):
        links = [self.pair.env.link(direction).counters for direction in ("a_to_b", "b_to_a")]
        if self.plan.rough:
            self.met["stalls, reordering and damage at once"] += min(
                sum(link.reordered.total() for link in links), sum(link.corrupted.total() for link in links))
        if self.plan.network is not None:
            counts = [port.counters for port in self.pair.fabric.ports]
            self.met.update({bins.DROPS: sum(count.dropped.total() for count in counts),
                             bins.TRIMS: sum(count.trimmed for count in counts),
                             bins.MARKS: sum(count.marked for count in counts),
                             bins.PAUSES: sum(count.pauses for count in counts),
                             bins.CUTS: sum(count.cut for count in counts)})
        if unknown_peers is not None:
            self.met["honest QPs beside hostile frames"] += unknown_peers.sent
        for agent in agents:
            self.met.update(agent.met)
        self.met[f"preset {self.plan.card}"] += self.plan.card in ("test", "basic")


@cocotb.test()
async def soak(dut):
    plan = draw(bench_seed(), **given())
    run = Run(dut, plan)
    await run.run()
    leave({"seed": plan.seed, "cycles": round(get_sim_time("ns") / CLOCK_PERIOD_NS), "hazards": plan.hazards,
           "met": {name: run.met[name] for name in bins.BINS if run.met[name]},
           "completed": sum(lane.completed for lane in run.lanes)})


def run(seed, cycles=CYCLES, hazards=None):
    """Simulate the run of a seed, with ``hazards`` instead of those of its plan if they are given.

    Return ``seed``, ``cycles``, ``met``, ``hazards``, ``completed`` and ``seconds``; or ``seed`` and why it ``failed``.
    """
    began = time.monotonic()
    try:
        found = run_cards(CARDS[draw(seed, cycles).card], __file__, {"cycles": cycles, "hazards": hazards}, seed=seed,
                          timeout_s=TIMEOUT_S)
    except AssertionError as error:
        return {"seed": seed, "failed": str(error)}
    return {**found, "seconds": time.monotonic() - began}
