"""Breadth-first search of every state that two ends of a channel can reach.

Conditions checked in each state: no counter is below zero; credits are conserved; the posted receives and the
completion queue are large enough for everything posted and not yet taken, because the connection may deliver all of it
before the program polls. If the only possible events are new messages, nothing waits. Every cycle of states contains a
new message: acknowledgements end.
"""

from typing import NamedTuple

from weft.driver.channel.credits import unpack_ack
from weft.tb.test.driver.channel.ends import ENDS, MESSAGE, Ends, Event, InvalidEvent


class Violation(AssertionError):
    """Forbidden state, and the events that lead to it."""


class Totals(NamedTuple):
    """Result of a search.

    Attributes
    ----------
    states, steps : int
        States found, and steps between them.
    acks : int
        Largest number of acknowledgements that follow without a new message.
    depth : int
        Events from the start to the most distant state.
    """

    states: int
    steps: int
    acks: int
    depth: int


class Search:
    """Search of all states of two ends; parameters as for :class:`Ends`."""

    def __init__(self, capacities, **options):
        self.capacities = capacities
        self.ends = Ends(capacities, **options)
        self._came = {}     # (previous state, end, event) of each state

    def run(self):
        """Return the :class:`Totals`; raise a Violation if the ends can reach a forbidden state."""
        first = self.ends.start
        numbers, queue, settling, steps = {first: 0}, [first], [], 0
        self._came[first] = None
        for state in queue:
            on = []
            try:
                for end, event, following, acks in self.ends.steps(state):
                    steps += 1
                    if self.ends.alike:
                        following = min(following, following.mirrored)
                    if following not in numbers:
                        numbers[following] = len(queue)
                        queue.append(following)
                        self._came[following] = (state, end, event)
                        self._check(following)
                    if event != Event.WANT:
                        on.append((numbers[following], acks))
            except InvalidEvent as error:
                raise self._violation(state, str(error)) from error
            if not on:
                self._check_at_rest(state)
            settling.append(on)
        return Totals(len(queue), steps, self._check_settling(settling, queue), len(self._path(queue[-1])))

    def _check(self, state):
        c = self.capacities
        for end in ENDS:
            mine, peer, wire, back = state.ends[end], state.ends[1 - end], state.wires[end], state.wires[1 - end]
            if min(mine) < 0:
                raise self._violation(state, f"end {end} counts below zero")
            if len(wire) > c.max_recv_wr:
                raise self._violation(state, f"receiver not ready: {len(wire)} sends for {c.max_recv_wr} receives")
            completions = self.ends.outstanding(mine) + len(wire)
            if completions > c.max_cqe:
                raise self._violation(state, f"CQ overflow: {completions} completions for {c.max_cqe}")
            messages = wire.count(MESSAGE)
            announced = [unpack_ack(word) for word in back if word != MESSAGE]
            data = peer.data_remote + messages + mine.data_owed + sum(data for data, _ in announced)
            imm = peer.imm_remote + len(wire) - messages + mine.imm_owed + sum(imm for _, imm in announced)
            if (data, imm) != (c.max_send_data_wr, c.max_send_imm_wr):
                raise self._violation(state, f"credits not conserved: {data} and {imm} for sends to end {end}")

    def _check_at_rest(self, state):
        for end, now in enumerate(state.ends):
            for subject, waits in (("a message", now.waiting), ("an acknowledgement", self.ends.ack_waits(end, now))):
                if waits:
                    raise self._violation(state, f"deadlock: {subject} waits at end {end}, and nothing can happen")

    def _check_settling(self, settling, states):
        """Return the largest number of acknowledgements that follow without a new message."""
        sources = [0] * len(settling)
        for on in settling:
            for number, _ in on:
                sources[number] += 1
        most = [0] * len(settling)
        ready = [number for number, count in enumerate(sources) if not count]
        for number in ready:
            for following, acks in settling[number]:
                most[following] = max(most[following], most[number] + acks)
                sources[following] -= 1
                if not sources[following]:
                    ready.append(following)
        if len(ready) < len(settling):
            state = next(state for state, count in zip(states, sources, strict=True) if count)
            raise self._violation(state, "storm: acknowledgements go back and forth for ever")
        return max(most)

    def _path(self, state):
        """Return [(end, event, state)] from the start; if the ends are alike, a step may have swapped them."""
        path = []
        while (came := self._came[state]) is not None:
            path.append((*came[1:], state))
            state = came[0]
        return path[::-1]

    def _violation(self, state, subject):
        lines = [f"  end {end}, {event.name}: {after.ends[0]} <- {after.wires[0]}; {after.ends[1]} <- {after.wires[1]}"
                 for end, event, after in self._path(state)]
        return Violation("\n".join([f"{subject}; {self.capacities}, after:", *lines]))
