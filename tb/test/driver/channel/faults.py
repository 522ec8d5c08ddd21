"""Credits with a planted fault each, and the capacities that show it: the search has to catch all of them."""

from weft.driver.channel.capacities import Capacities
from weft.driver.channel.credits import Credits, Post, Work, pack_ack, unpack_ack


class NeverFullData(Credits):
    """Waits for more messages than may be under way."""

    @property
    def ack_due(self):
        return self.data.owed > self.data.capacity or self.imm.due


class NeverFullImm(Credits):
    """Waits for more acknowledgements than may be under way."""

    @property
    def ack_due(self):
        return self.data.due or self.imm.owed > self.imm.capacity


class AnswersEachAck(Credits):
    """Acknowledges each acknowledgement."""

    @property
    def ack_due(self):
        return self.data.due or self.imm.owed > 0


class AcksEachMessage(Credits):
    """Acknowledges each message."""

    @property
    def ack_due(self):
        return self.data.owed > 0 or self.imm.due


class AtTheThreshold(Credits):
    """At the threshold, not above it."""

    @property
    def ack_due(self):
        return self.data.owed >= max(1, self.data.threshold) or self.imm.owed >= max(1, self.imm.threshold)


class ForgetsAcks(Credits):
    """Never counts the acknowledgements that came."""

    def _post(self, work, item):
        if work is Work.IMM:
            item = pack_ack(unpack_ack(item)[0], 0)
        return super()._post(work, item)


class SwapsCounts(Credits):
    """Reads the two counts the wrong way round."""

    def received_ack(self, value):
        return super().received_ack(pack_ack(*reversed(unpack_ack(value))))


class TellsTwice(Credits):
    """Goes on counting messages that it acknowledged."""

    def _post(self, work, item):
        if work is Work.IMM:
            self.data.owed = unpack_ack(item)[0]
        return super()._post(work, item)


class CompletionIsCredit(Credits):
    """Takes a completion for an acknowledgement."""

    def sent(self, work):
        lane = self.lanes[work]
        lane.remote_remain = min(lane.capacity, lane.remote_remain + 1)
        return super().sent(work)


class AcksWithoutCredit(Credits):
    """Posts acknowledgements whatever the peer has receives for."""

    def _posts(self):
        if self.ack_due and not self.imm.remote_remain:
            self.imm.local_remain -= 1
            return [Post(Work.IMM, pack_ack(self.data.settle(), self.imm.settle()))]
        return super()._posts()


class IgnoresLocal(Credits):
    """Posts messages whatever is outstanding in the send queue."""

    def _posts(self):
        posts = super()._posts()
        while self.waiting[Work.DATA] and self.data.remote_remain:
            posts.append(self._post(Work.DATA, self.waiting[Work.DATA].popleft()))
        return posts




class SeedOnly(Credits):
    """Has no further rule for one credit for acknowledgements."""

    @property
    def ack_due(self):
        return self.data.due or self.imm.due


def _acks(data, imm, **options):
    return Capacities(data, imm), options


# What is planted, where it shows, and as what.
FAULTS = (
    (NeverFullData, *_acks(2, 2), "deadlock"),
    (NeverFullImm, *_acks(2, 2), "deadlock"),
    (AnswersEachAck, *_acks(1, 3), "storm"),
    (AcksEachMessage, *_acks(2, 2), "deadlock"),
    (AtTheThreshold, *_acks(1, 3), "storm"),
    (ForgetsAcks, *_acks(2, 2), "credits not conserved"),
    (SwapsCounts, *_acks(2, 2), "the peer acknowledged|credits not conserved"),
    (TellsTwice, *_acks(2, 2), "credits not conserved"),
    (CompletionIsCredit, *_acks(1, 2, exact=True), "credits not conserved"),
    (AcksWithoutCredit, *_acks(1, 1), "credits not conserved|the peer sent more"),
    (IgnoresLocal, *_acks(1, 2, exact=True), "below zero"),
    (SeedOnly, *_acks(1, 1), "deadlock"),
    (Credits, *_acks(2, 1, yields=(False, False)), "deadlock"),
    (Credits, *_acks(2, 1, yields=(True, True)), "deadlock"),
)
