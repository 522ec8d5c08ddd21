"""What a run of a seed is: everything that is drawn before it begins."""

import random
from dataclasses import dataclass, replace

from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig
from weft.tb.verify.soak.bins import OUTAGES

CYCLES = 400_000               # of a run, unless said otherwise
CARDS = {"test": preset("test"), "basic": preset("basic"), "few": preset("test").with_(name="few", cache_entries=8)}
TURNS = ("test", "few", "test", "basic", "test", "test", "basic", "test")       # whose card, by seed
EAGER = (0.5, 0.05, 0.01)      # chance that a side of a lane posts something, each microsecond or so
HAZARDS = ("PCIe faults", "hostile frames", *OUTAGES, None)
REORDER_DISTANCE = 64
MANY_LISTS = LinkConfig(delay_ns=4_000, loss=0.2)    # so that many busy QPs recover at the same time
BLOCKS = 64                    # of an extent


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes
    ----------
    seed, cycles : int
    card : str
        One of :data:`CARDS`.
    hazards : tuple of str
        Of :data:`HAZARDS`.
    lanes : int
        Pairs of QPs.
    eager : tuple of float
        Each life of a lane draws one: how busy it is, a chance to post something.
    life_ns : float
        How long the lives of every other lane take, about.
    rough : bool
        The link reorders, doubles and damages frames, and for a while the hard blocks hold their streams back.
    env : EnvConfig
    context : ContextConfig
    """

    seed: int
    cycles: int
    card: str
    hazards: tuple
    lanes: int
    eager: tuple
    life_ns: float
    rough: bool
    env: EnvConfig
    context: ContextConfig


def draw(seed, cycles=CYCLES, hazards=None):
    """The run of a seed. Cards and hazards take turns by seed, so that many seeds in a row meet all of them, unless
    ``hazards`` are given."""
    rng = random.Random(f"soak plan {seed}")
    card = TURNS[seed % len(TURNS)]
    drawn = {HAZARDS[(seed + seed // len(TURNS)) % len(HAZARDS)], rng.choice(HAZARDS)} - {None}
    rough = rng.random() < 0.5
    link = LinkConfig(delay_ns=rng.choice([300, 1_500, 4_000]), loss=rng.choice([0.002, 0.02, 0.08]))
    if card == "few":
        link = MANY_LISTS
    if rough:
        link = replace(link, reorder=0.03, duplicate=0.02, corrupt=0.01)
    host = HostConfig(read_latency_ns=rng.choice([300, 1_000]), read_jitter=0.5,
                      split_completions=rng.random() < 0.2)
    distance = REORDER_DISTANCE if rough else 1
    return Plan(
        seed, cycles, card, tuple(sorted(drawn if hazards is None else hazards)),
        lanes=12 if card == "few" else rng.randint(3, 6), eager=EAGER[:1] if card == "few" else EAGER,
        life_ns=1_000_000 if card == "few" else 150_000, rough=rough,
        env=EnvConfig(a_to_b=link, b_to_a=link, host=host, vectors=CARDS[card].msix_vectors,
                      mac_idle=rng.choice([0, 0.2])),
        context=ContextConfig(
            reorder_distance=distance, retransmit_slack=distance, probe_timeout_ns=25_000, ring_log2=rng.choice([5, 7]),
            extent_bytes=64 * BLOCKS, node_age_ns=rng.choice([300, 2_000]), silence_ns=40_000))
