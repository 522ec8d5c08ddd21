"""Two cards as points of a sweep: the traffic of the calibration, on the RTL or in the timing model."""

import functools
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from weft.model.card.timing import CYCLE_NS
from weft.model.settings import Setting
from weft.tb.sim.pair.settings import SIDES
from weft.tb.sim.scenario.scenario import Conditions, Scenario

if TYPE_CHECKING:
    from weft.tb.sim.scenario.runs import Gateware

BACKENDS = ("rtl", "model")
_ELABORATION = threading.Lock()


class Unfinished(Exception):
    """Run that did not end as required; the message is a sentence about the problem."""


@dataclass(frozen=True, kw_only=True)
class CardPoint(Conditions):
    """Conditions of a run, and its back end."""

    backend: Annotated[str, Setting("RTL, or the timing model.", choices=BACKENDS)] = "rtl"


@dataclass(frozen=True)
class CardResult:
    """Measurements of a run; amounts are sums over both cards."""

    goodput_gbps: float     # payload of one direction over the time of `cycles`
    cycles: float           # of 4 ns, from the first request to the last acknowledgement of the slower side
    packets: int            # sent, retransmissions included
    retransmissions: int
    holes: int              # found by the windows
    nodes: int              # linked into lists
    cache_hits: int         # of the head caches, like the next two
    cache_misses: int
    prefetches: int
    stall_cycles: int       # in which a retransmission waited for its node
    seconds: float


@functools.cache
def _gateware() -> "Gateware":
    from weft.tb.sim.scenario.runs import Gateware  # other sweeps do not need the imports of elaboration

    return Gateware()


def measure(point: CardPoint) -> CardResult:
    """Return the results of a run; on the RTL they are cached by content, like the calibration's. Raises Unfinished."""
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

    def both(name: str) -> int:
        return sum(found["counters"][side][name] for side in SIDES)

    return CardResult(
        goodput_gbps=8 * point.bytes / (found["cycles"] * CYCLE_NS), cycles=found["cycles"],
        packets=both("tx_packets"), retransmissions=both("tx_retransmissions"), holes=both("holes"),
        nodes=both("nodes_linked"), cache_hits=both("cache_hits"), cache_misses=both("cache_misses"),
        prefetches=both("prefetches"), stall_cycles=found["stall_cycles"], seconds=time.monotonic() - start)
