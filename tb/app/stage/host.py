"""What a program on a stage has: an open card, a word with the other program, and time that goes on."""

import collections
from functools import partial

from weft.driver.terms.errors import TimedOut

SERVE_NS = 5_000         # at most between two looks of a host whose program has ended
SILENCE_NS, SILENCE_ROUND_TRIPS = 50_000_000, 1000    # who waits in vain for so long gives up


class PeerFailed(Exception):
    """The program on the other host ended with an error: what is waited for will not come."""


class ProgramFailed(Exception):
    """A program in a simulator ended with an error, which is told in a sentence."""


class Host:
    """One of the two hosts.

    Parameters
    ----------
    side : str
        ``"a"`` or ``"b"``.
    context : Context
    told : callable(phase, done, total)
        Gets what the program says of its progress.
    rtt_us : float
        Of the link.

    Attributes
    ----------
    peer : Host
        The other one. Programs reach it by :meth:`tell` and :meth:`hear` only: what they exchange out of band, as two
        processes do over TCP.
    error : Exception or None
        How its program ended.
    ended : bool
    silence_ns : int
        Who waits in vain for so long gives up.
    """

    def __init__(self, side, context, told, rtt_us):
        self.side, self.context, self.progress = side, context, told
        self.silence_ns = SILENCE_NS + round(SILENCE_ROUND_TRIPS * rtt_us * 1000)
        self.peer = self.error = None
        self.ended = False
        self._inbox = collections.deque()

    @property
    def now_ns(self):
        """Simulated time."""
        return self.context.device.now_ns()

    def tell(self, *values):
        """Hand values to the program of the other host."""
        self.peer._inbox.append(values)

    @property
    def heard(self):
        """The other program said something that was not taken yet."""
        return bool(self._inbox)

    def hear(self):
        """What the other program said next; waits for it, and answers the other card meanwhile.

        Raises
        ------
        PeerFailed, TimedOut
        """
        deadline = self.now_ns + self.silence_ns
        while not self._inbox:
            if self.now_ns > deadline:
                raise TimedOut(f"host {self.side} heard nothing for {self.silence_ns} ns")
            self.pass_time(SERVE_NS)
        return self._inbox.popleft()

    def pass_time(self, timeout_ns):
        """Let the driver work and, if there is nothing to do, time go on: until an interrupt, for ``timeout_ns`` at
        most.

        Raises
        ------
        PeerFailed
        """
        self.check_peer()
        if not self.context.progress():
            self.context.wait(timeout_ns)

    def look(self, interval_ns):
        """The same for who polls: the next look at memory is after ``interval_ns``.

        Raises
        ------
        PeerFailed
        """
        self.check_peer()
        self.context.progress()
        self.context.device.wait(interval_ns)

    def check_peer(self):
        """Raise :class:`PeerFailed` if nothing more will come of the other program."""
        if self.peer.error is not None and not self.ended:
            raise PeerFailed(f"the program of host {self.peer.side} failed")

    def play(self, program, arguments):
        """Run ``program(host, **arguments)``, then answer the other card until that host's program has ended, too; the
        result, or None after an error."""
        result = None
        try:
            result = program(self, **arguments)
        except Exception as error:     # the other host has to end as well; then the stage raises it
            self.error = error
        self.ended = True
        while not self.peer.ended:
            self.pass_time(SERVE_NS)
        return result


async def perform(pair, programs, arguments, told, rtt_us):
    """Play a program on each host of a :class:`~weft.tb.sim.pair.pair.Pair`; return the hosts and the results."""
    hosts = [Host(side, context, told, rtt_us) for side, context in pair.contexts.items()]
    for host, peer in (hosts, hosts[::-1]):
        host.peer = peer
    return hosts, await pair.gather(*(partial(host.play, program, arguments)
                                      for host, program in zip(hosts, programs, strict=True)))


def raise_first(hosts):
    """Raise what a program ended with; rather not that its peer failed."""
    errors = [host.error for host in hosts if host.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, PeerFailed)):
        raise error
