"""Plan of a run: all settings drawn from its seed before it begins."""

import random
from dataclasses import dataclass, replace

from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract.params import preset
from weft.model.fabric.description import MARKINGS, Background, Fabric, FabricLink, Flow, Switch
from weft.model.impairments import LinkConfig
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.verify.soak.bins import OUTAGES

CYCLES = 400_000               # default length of a run
CARDS = {"test": preset("test"), "basic": preset("basic"), "few": preset("test").with_(name="few", cache_entries=8)}
TURNS = ("test", "few", "test", "basic", "test", "test", "basic", "test")       # cards of successive seeds
EAGER = (0.5, 0.05, 0.01)      # probability that a side of a lane posts a request, about each microsecond
HAZARDS = ("PCIe faults", "hostile frames", *OUTAGES, None)
REORDER_DISTANCE = 64
MANY_LISTS = LinkConfig(delay_ns=4_000, loss=0.2)    # makes many busy QPs recover at the same time
BLOCKS = 64                    # blocks per extent
NETWORKS = 0.6                 # share of the runs whose cards are on a network
ALGORITHMS = ("none", "dcqcn", "swift", "rate-match")


@dataclass(frozen=True)
class Plan:
    """Plan of a run."""

    seed: int
    cycles: int
    card: str           # key of `CARDS`
    hazards: tuple      # from `HAZARDS`
    lanes: int          # pairs of QPs
    eager: tuple        # each incarnation of a lane draws one of these probabilities of posting a request
    lifetime_ns: float      # approximate duration of an incarnation, for every other lane
    rough: bool         # the link reorders, duplicates and damages frames, and the hard blocks stall for a while
    env: EnvConfig
    context: ContextConfig
    network: Fabric | None      # between the cards, instead of the link of `env`


def draw(seed, cycles=CYCLES, hazards=None):
    """Return the plan of a seed.

    Cards, hazards and algorithms alternate by seed, so that many consecutive seeds cover all of them, unless
    ``hazards`` are given.
    """
    rng = random.Random(f"soak plan {seed}")
    card = TURNS[seed % len(TURNS)]
    drawn = {HAZARDS[(seed + seed // len(TURNS)) % len(HAZARDS)], rng.choice(HAZARDS)} - {None}
    rough = rng.random() < 0.5
    link = LinkConfig(delay_ns=rng.choice([300, 1_500, 4_000]), loss=rng.choice([0.002, 0.02, 0.08]))
    if card == "few":
        link = MANY_LISTS
    if rough:
        link = replace(link, reorder=0.03, duplicate=0.02, corrupt=0.01)
    host = HostConfig(read_latency_ns=rng.choice([300, 1_000]), read_jitter=0.5, split_completions=rng.random() < 0.2)
    distance = REORDER_DISTANCE if rough else 1
    hazards = tuple(sorted(drawn if hazards is None else hazards))
    network = None
    if rng.random() < NETWORKS and not rough and card != "few" and "hostile frames" not in hazards:
        network = draw_network(rng, cycles * CLOCK_PERIOD_NS / 1e3)
    return Plan(
        seed, cycles, card, hazards,
        lanes=12 if card == "few" else rng.randint(3, 6), eager=EAGER[:1] if card == "few" else EAGER,
        lifetime_ns=1_000_000 if card == "few" else 150_000, rough=rough,
        env=EnvConfig(a_to_b=link, b_to_a=link, host=host, vectors=CARDS[card].msix_vectors,
                      mac_idle=rng.choice([0, 0.2])),
        context=ContextConfig(
            reorder_distance=distance, retransmit_slack=distance, probe_timeout_ns=25_000, ring_log2=rng.choice([5, 7]),
            extent_bytes=64 * BLOCKS, node_age_ns=rng.choice([300, 2_000]), silence_ns=40_000,
            congestion="none" if network is None else ALGORITHMS[seed % len(ALGORITHMS)]), network=network)


def draw_network(rng, length_us):
    """Return a network of two hosts: two paths, small buffers, marks, pauses, trimming, cuts and background traffic.

    One of the paths is cut for a while in the first half of ``length_us``.
    """
    cut = rng.uniform(0.1, 0.4) * length_us
    inner = [("s", "p"), ("p", "t"), ("s", "q"), ("q", "t")]
    links = [FabricLink(a=a, b=b, delay_us=rng.uniform(0.2, 2), loss=rng.choice([0, 0.01]),
                        down_us=((cut, cut + rng.uniform(10, 60)),) if (a, b) == inner[0] else ()) for a, b in inner]
    slow = FabricLink(a="t", b="b", rate_gbps=rng.choice([10, 25]), delay_us=0.3)
    marks = rng.choice(MARKINGS[1:])
    switches = [Switch(name=name, buffer_kib=rng.choice([16, 64, 256]), alpha=rng.choice([1, 8]), marking=marks,
                       mark_from_kib=4, mark_to_kib=16, mark_chance=0.5, pfc=rng.random() < 0.5, pause_kib=8,
                       trim=rng.random() < 0.5)
                for name in "stpq"]
    return Fabric(("a", "b"), tuple(switches), (FabricLink(a="a", b="s", delay_us=0.3), *links, slow),
                  (Flow(source="a", destination="b"),), ("t", "b"),
                  (Background(source="a", destination="b", rate_gbps=slow.rate_gbps * rng.choice([0.8, 1.0])),))
