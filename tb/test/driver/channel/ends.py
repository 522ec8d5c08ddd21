"""Two ends of a channel as a state, and what may happen next: the real credit counters make each step."""

import enum
from typing import NamedTuple

from weft.driver.channel.credits import Credits, Work

MESSAGE = -1    # under way; everything else is the immediate of an acknowledgement
ENDS = (0, 1)


class Event(enum.IntEnum):
    """What may happen at an end."""

    WANT = 0            # the program wants to send a message
    TAKE = 1            # it takes the oldest of what came
    COMPLETE_DATA = 2   # a message completes
    COMPLETE_IMM = 3    # an acknowledgement completes


class End(NamedTuple):
    """What one end counts."""

    data_local: int
    data_remote: int
    data_owed: int
    imm_local: int
    imm_remote: int
    imm_owed: int
    waiting: int


class State(NamedTuple):
    """Both ends, and what is under way to each, oldest first."""

    ends: tuple
    wires: tuple

    @property
    def mirrored(self):
        return State(self.ends[::-1], self.wires[::-1])


class Broken(AssertionError):
    """An event that the counters refuse, or that they should have."""


class Ends:
    """The steps of two ends.

    Both may want to send at any time. A connection delivers in order, each direction for itself, and late; a send may
    complete as soon as it is posted, which is earlier than on a real connection and therefore contains all that can
    happen there.

    Parameters
    ----------
    capacities : Capacities
    other : Capacities, optional
        Of the second end, where its thresholds differ.
    rules : type
        :class:`Credits`, or one with a planted fault.
    exact : bool
        Count local credits. Otherwise it is left open whether there are any: an acknowledgement that is due is posted
        at once or later, and a message too, as nobody says when the program wants to send it. That holds more than all
        local credits and completions could bring about, in far fewer states.
    yields : tuple of bool
        Of the two ends; matters when there is one credit for acknowledgements.

    Attributes
    ----------
    alike : bool
        Both follow the same rule, so that a state and its mirror image are one.
    """

    def __init__(self, capacities, *, other=None, rules=Credits, exact=False, yields=(True, False)):
        self.capacities, self.exact = capacities, exact
        self.alike = other in (None, capacities) and (capacities.max_send_imm_wr > 1 or yields[0] == yields[1])
        self._credits = [rules(c, yields=y) for c, y in zip((capacities, other or capacities), yields, strict=True)]
        self._local = (capacities.max_send_data_wr, capacities.max_send_imm_wr) if exact else (1, 1)
        self._known = {}

    @property
    def start(self):
        data, imm = self.capacities.max_send_data_wr, self.capacities.max_send_imm_wr
        end = End(self._local[0], data, 0, self._local[1], imm, 0, 0)
        return State((end, end), ((), ()))

    def steps(self, state):
        """(end, event, state, acknowledgements posted) of everything that may happen next."""
        for end in ENDS:
            now, wire = state.ends[end], state.wires[end]
            for event in self._possible(now, wire):
                key = (end, now, event, wire[0] if event == Event.TAKE else None)
                if key not in self._known:
                    self._known[key] = self._outcomes(*key)
                for after, posted in self._known[key]:
                    mine = wire[1:] if event == Event.TAKE else wire
                    theirs = state.wires[1 - end] + posted
                    following = (State((state.ends[0], after), (theirs, mine)) if end else
                                 State((after, state.ends[1]), (mine, theirs)))
                    yield end, event, following, len(posted) - posted.count(MESSAGE)

    def ack_waits(self, end, now):
        """An acknowledgement is due at an end, and not posted."""
        return self._load(end, now).ack_due

    def outstanding(self, now):
        """Send requests of an end that may not be complete."""
        return self.capacities.max_send_wr - (now.data_local + now.imm_local if self.exact else 0)

    def _possible(self, now, wire):
        if not now.waiting:
            yield Event.WANT
        if wire:
            yield Event.TAKE
        if now.data_local < self._local[0]:
            yield Event.COMPLETE_DATA
        if now.imm_local < self._local[1]:
            yield Event.COMPLETE_IMM

    def _outcomes(self, end, now, event, value):
        """[(End, posted)] of an event at an end: one, or two where an acknowledgement may go now or later."""
        try:
            outcomes = [self._act(end, now, event, value)]
            if not self.exact and now.imm_local and any(word != MESSAGE for word in outcomes[0][1]):
                outcomes.append(self._act(end, now._replace(imm_local=0), event, value))
        except (ValueError, ConnectionError) as error:
            raise Broken(f"end {end}, {event.name}: {error}") from error
        return outcomes

    def _act(self, end, now, event, value):
        credits = self._load(end, now)
        if event == Event.WANT:
            posts = credits.want(Work.DATA, None)
        elif event != Event.TAKE:
            posts = credits.sent(Work.DATA if event == Event.COMPLETE_DATA else Work.IMM)
        elif value == MESSAGE:
            posts = credits.received_data() + credits.reposted(Work.DATA)
        else:
            posts = credits.received_ack(value) + credits.reposted(Work.IMM)
        return self._saved(credits), tuple(item if work is Work.IMM else MESSAGE for work, item in posts)

    def _load(self, end, now):
        credits = self._credits[end]
        data, imm = credits.data, credits.imm
        data.local_remain, data.remote_remain, data.owed, imm.local_remain, imm.remote_remain, imm.owed = now[:-1]
        if not self.exact:
            data.local_remain, imm.local_remain = data.capacity, imm.capacity * now.imm_local
        waiting = credits.waiting[Work.DATA]
        waiting.clear()
        waiting.extend([None] * now.waiting)
        return credits

    def _saved(self, credits):
        data, imm = credits.data, credits.imm
        local = (data.local_remain, imm.local_remain) if self.exact else (1, int(imm.local_remain > 0))
        return End(local[0], data.remote_remain, data.owed, local[1], imm.remote_remain, imm.owed,
                   len(credits.waiting[Work.DATA]))
