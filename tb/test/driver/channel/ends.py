"""State of both ends of a channel and its possible events; the real credit counters execute each step."""

import enum
from typing import NamedTuple

from weft.driver.channel.credits import Credits, Work

MESSAGE = -1    # a message in flight; any other value is the immediate of an acknowledgement
ENDS = (0, 1)


class Event(enum.IntEnum):
    """Possible event at an end."""

    WANT = 0            # the program wants to send a message
    TAKE = 1            # the program takes the oldest delivered item
    COMPLETE_DATA = 2   # a message completes
    COMPLETE_IMM = 3    # an acknowledgement completes


class End(NamedTuple):
    """Counters of one end."""

    data_local: int
    data_remote: int
    data_owed: int
    imm_local: int
    imm_remote: int
    imm_owed: int
    waiting: int


class State(NamedTuple):
    """Both ends, and the items in flight to each, oldest first."""

    ends: tuple
    wires: tuple

    @property
    def mirrored(self):
        return State(self.ends[::-1], self.wires[::-1])


class InvalidEvent(AssertionError):
    """Event that the counters reject, or fail to reject."""


class Ends:
    """Possible steps of two ends.

    Both ends may want to send at any time. The connection delivers each direction in order, and late. A send may
    complete as soon as it is posted: earlier than on a real connection, which covers every order that is possible
    there.

    Parameters
    ----------
    capacities : Capacities
    other : Capacities, optional
        Of the second end, if its thresholds differ.
    rules : type
        :class:`Credits`, or a subclass with a planted fault.
    exact : bool
        Count local credits. Otherwise an acknowledgement may find a credit or not: if due, it is posted at once or
        later. A message has no such choice, because the program may want to send it at any time. This
        covers more than all local credits and completions could cause, with far fewer states.
    yields : tuple of bool
        Of the two ends; matters if there is one credit for acknowledgements.

    Attributes
    ----------
    alike : bool
        Both ends follow the same rule, so that a state and its mirror image are one state.
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
        """Yield (end, event, state, number of acknowledgements posted) for every possible next step."""
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
        """Return true if an acknowledgement is due at an end, but not posted."""
        return self._load(end, now).ack_due

    def outstanding(self, now):
        """Return the largest number of send requests of an end that may be incomplete."""
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
        """Return [(End, posted)] of an event at an end.

        There are two outcomes if an acknowledgement may be posted now or later.
        """
        try:
            outcomes = [self._act(end, now, event, value)]
            if not self.exact and now.imm_local and any(word != MESSAGE for word in outcomes[0][1]):
                outcomes.append(self._act(end, now._replace(imm_local=0), event, value))
        except (ValueError, ConnectionError) as error:
            raise InvalidEvent(f"end {end}, {event.name}: {error}") from error
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
