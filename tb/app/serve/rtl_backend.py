"""Hosts on the RTL of two cards, inside the simulator; the daemon controls simulated time."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from cocotb.task import resume
from cocotb.triggers import Event, First, Timer
from cocotb.utils import get_sim_time

from weft.tb.app.serve.capture import CapturesOfCards
from weft.tb.app.serve.functional import REST_S, config_for
from weft.tb.app.serve.notices import NoticedBackend, Notices, beginning_after
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig, TwoCards

QUIET_NS = 5_000      # the cards are idle after this time without access to memory and without a frame
REST_STEPS_MAX = 200  # number of such intervals after which the wait for idle cards ends
STEP_NS = 1_000       # longest simulated time between two checks of programs that use wall-clock time


class ServedCards(TwoCards):
    """Two cards with captures.

    Parameters
    ----------
    dut, config, seed
        As in :class:`TwoCards`.
    names
        Names of both hosts.
    captures
        Folder of the captures of each host.
    """

    def __init__(self, dut: Any, config: EnvConfig, seed: str, *, names: Sequence[str],
                 captures: str | Path | None) -> None:
        super().__init__(dut, config, seed)
        self._captures = CapturesOfCards(captures, dict(zip(SIDES, names, strict=True)))


class RtlBackend(NoticedBackend):
    """Drivers of started :class:`ServedCards`. A single bridge thread uses all of it.

    Parameters
    ----------
    names
        Names of both hosts.
    first
        The last byte of the first host's addresses.
    congestion
        Congestion control of the drivers.
    """

    def __init__(self, env: ServedCards, names: Sequence[str], *, delay_ns: int, seed: str, first: int = 1,
                 congestion: str = "none") -> None:
        super().__init__()
        self._env, self.seed = env, seed
        self.notices, self._notice = Notices(), Event()
        self.notices.wake = self._wake
        self._active_ns = self.now_ns
        for n, (name, side) in enumerate(zip(names, SIDES, strict=True), first - 1):
            self._open(name, n, env.device(side), env.sides[side].link,
                       config_for(delay_ns, f"{seed}/{n}", congestion))
            self.notices.watch(env.host(side).memory, self.hosts[name])

    def _wake(self) -> None:
        self._active_ns = self.now_ns
        if self.notices:
            self._notice.set()

    @property
    def now_ns(self) -> float:
        return get_sim_time("ns")

    @property
    def _quiet(self) -> bool:
        env = self._env
        reading = any(env.host(side).reading for side in SIDES)
        return not reading and not env.frames_in_flight and self.now_ns - self._active_ns >= QUIET_NS

    @property
    def due_ns(self) -> float | None:
        return self.driver_due_ns if self._quiet else self.now_ns

    def rest(self, number: int) -> None:
        for _ in range(REST_STEPS_MAX):
            if self._quiet:
                break
            self.advance(self.now_ns + QUIET_NS, frozenset())
        begin = beginning_after(self.now_ns)
        while self.now_ns < begin:
            self._pass(begin)
        for side in SIDES:
            self._env.host(side).rng.seed(f"{self.seed}/{number}/host {side}")
            self._env.sides[side].link.impairments.seed(f"{self.seed}/{number}/link {side}")

    def settle(self) -> None:
        self._active_ns = self.now_ns
        super().settle()

    def advance(self, until_ns: float, watched: Collection[str]) -> bool:
        return super().advance(min(until_ns, self.now_ns + QUIET_NS) if self.driver_due_ns is None else until_ns,
                               watched)

    @resume
    async def _pass(self, until_ns: float) -> None:
        self._notice.clear()
        left_ps = round((until_ns - self.now_ns) * 1000)
        if left_ps > 0:
            await First(self._notice.wait(), Timer(left_ps, "ps"))

    def progress(self) -> bool:
        """Advance time for programs that use wall-clock time; return whether there was work."""
        if self.due_ns is None:
            self.settle()
            return self.due_ns is not None
        self.advance(self.now_ns + STEP_NS, frozenset())
        return True

    def rest_s(self) -> float:
        return REST_S
