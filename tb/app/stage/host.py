"""Host of a program on a stage: its card, messages to the other program, and control of time."""

import collections
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.driver.terms.errors import TimedOut

if TYPE_CHECKING:
    from weft.driver.verbs.context import Context
    from weft.tb.sim.pair.pair import Pair

Program = Callable[..., Any]
SERVE_NS = 5_000         # longest interval between progress calls of a host whose program has ended
SILENCE_NS, SILENCE_ROUND_TRIPS = 50_000_000, 1000    # time-out of a wait: a constant, plus round trips


class PeerFailed(Exception):
    """Error of the program on the other host, for which a wait cannot succeed."""


class ProgramFailed(Exception):
    """Error of a program in a simulator, as a sentence."""


class Host:
    """One of the two hosts.

    Parameters
    ----------
    side
        ``"a"`` or ``"b"``.
    report : callable(phase, done, total)
        Receives the progress that the program reports.
    rtt_us
        Round trip time of the link, of which the time-out ``silence_ns`` of a wait for the peer depends.
    """

    # Set by `perform`. Programs use it only through `send` and `receive`, which exchange values out of band, like two
    # processes over TCP.
    peer: "Host"

    def __init__(self, side: str, context: "Context", report: Callable[..., None], rtt_us: float) -> None:
        self.side, self.context, self.progress = side, context, report
        self.silence_ns = SILENCE_NS + round(SILENCE_ROUND_TRIPS * rtt_us * 1000)
        self.error: Exception | None = None     # ended the program
        self.ended = False
        self._inbox: collections.deque[tuple[Any, ...]] = collections.deque()

    @property
    def now_ns(self) -> float:
        """Simulated time."""
        return self.context.device.now_ns()

    def send(self, *values: Any) -> None:
        """Send values to the program of the other host."""
        self.peer._inbox.append(values)

    @property
    def has_values(self) -> bool:
        """True if values of the other program are waiting."""
        return bool(self._inbox)

    def receive(self) -> tuple[Any, ...]:
        """Return the next values of the other program; the driver serves the peer. Raises PeerFailed or TimedOut."""
        deadline = self.now_ns + self.silence_ns
        while not self._inbox:
            if self.now_ns > deadline:
                raise TimedOut(f"host {self.side} received nothing for {self.silence_ns} ns")
            self.pass_time(SERVE_NS)
        return self._inbox.popleft()

    def pass_time(self, timeout_ns: int) -> None:
        """Let the driver work, or wait for an interrupt, at most for ``timeout_ns``. Raises PeerFailed."""
        self.check_peer()
        if not self.context.progress():
            self.context.wait(timeout_ns)

    def look(self, interval_ns: float) -> None:
        """Let the driver work, then wait at most ``interval_ns``, for programs that poll memory. Raises PeerFailed."""
        self.check_peer()
        self.context.progress()
        self.context.device.wait(interval_ns)

    def check_peer(self) -> None:
        """Raise :class:`PeerFailed` if the other program failed."""
        if self.peer.error is not None and not self.ended:
            raise PeerFailed(f"the program of host {self.peer.side} failed")

    def play(self, program: Program, arguments: dict[str, Any]) -> Any:
        """Run ``program(host, **arguments)``, then serve the peer until its program has ended, too.

        Return the result, or None after an error.
        """
        result = None
        try:
            result = program(self, **arguments)
        except Exception as error:     # raised by the stage after the other host has ended
            self.error = error
        self.ended = True
        while not self.peer.ended:
            self.pass_time(SERVE_NS)
        return result


async def perform(pair: "Pair", programs: Sequence[Program], arguments: dict[str, Any], report: Callable[..., None],
                  rtt_us: float) -> tuple[list[Host], list[Any]]:
    """Play a program on each host of a :class:`~weft.tb.sim.pair.pair.Pair`; return the hosts and the results."""
    hosts = [Host(side, context, report, rtt_us) for side, context in pair.contexts.items()]
    for host, peer in (hosts, hosts[::-1]):
        host.peer = peer
    return hosts, await pair.gather(*(partial(host.play, program, arguments)
                                      for host, program in zip(hosts, programs, strict=True)))


def raise_first(hosts: list[Host]) -> None:
    """Raise the error of a program, preferably one that is not :class:`PeerFailed`."""
    errors = [host.error for host in hosts if host.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, PeerFailed)):
        raise error
