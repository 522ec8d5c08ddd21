"""Two cards as points of a sweep: the traffic of the calibration, on the RTL or in the model in time."""

import functools
import threading
import time
from dataclasses import asdict, dataclass
from typing import Annotated

from weft.model.card.timing import CYCLE_NS
from weft.model.settings import Setting
from weft.tb.sim.pair.sides import SIDES
from weft.tb.sim.scenario.scenario import Conditions, Scenario

BACKENDS = ("rtl", "model")
_ELABORATION = threading.Lock()


class Unfinished(Exception):
    """The run did not end as it has to; what went wrong in a sentence."""


@dataclass(frozen=True, kw_only=True)
class CardPoint(Conditions):
    """Conditions, and the back end that runs them."""

    backend: Annotated[str, Setting("The gateware, or the model in time.", choices=BACKENDS)] = "rtl"


@dataclass(frozen=True)
class CardResult:
    """What was measured; amounts of both cards together.

    Attributes
    ----------
    goodput_gbps : float
        Payload of one direction over the time of ``cycles``.
    cycles : float
        Of 4 ns, from the first request to the last acknowledgement of the side that ends last.
    packets, retransmissions : int
        Sent, and how many of them again.
    holes, nodes : int
        Found by the windows; linked into lists.
    cache_hits, cache_misses, prefetches : int
        Of the head caches.
    stall_cycles : int
        In which a retransmission waited for its node.
    """

    goodput_gbps: float
    cycles: float
    packets: int
    retransmissions: int
    holes: int
    nodes: int
    cache_hits: int
    cache_misses: int
    prefetches: int
    stall_cycles: int
    seconds: float


@functools.cache
def _gateware():
    from weft.tb.sim.scenario.runs import Gateware  # what elaborates the card is not needed by other sweeps

    return Gateware()


def measure(point):
    """The CardResult of a CardPoint. A run on the RTL is kept by content, as those of the calibration are.

    Raises
    ------
    Unfinished
    """
    from weft.tb.sim.scenario.runs import run_model

    settings = asdict(point)
    backend, scenario = settings.pop("backend"), Scenario(name="sweep", **settings)
    start = time.monotonic()
    try:
        if backend == "rtl":
            with _ELABORATION:
                gateware = _gateware()
            found = gateware.run(scenario)
        else:
            found = run_model(scenario)
    except (AssertionError, RuntimeError) as error:
        raise Unfinished(str(error).strip().partition("\n")[0] or "the run failed") from None
    if found["problems"]:
        raise Unfinished(found["problems"][0])

    def both(name):
        return sum(found["counters"][side][name] for side in SIDES)

    return CardResult(
        goodput_gbps=8 * point.bytes / (found["cycles"] * CYCLE_NS), cycles=found["cycles"],
        packets=both("tx_packets"), retransmissions=both("tx_retransmissions"), holes=both("holes"),
        nodes=both("nodes_linked"), cache_hits=both("cache_hits"), cache_misses=both("cache_misses"),
        prefetches=both("prefetches"), stall_cycles=found["stall_cycles"], seconds=time.monotonic() - start)
