"""Credit rules with one planted fault each, and capacities that expose it; the search must find every fault."""

from weft.driver.channel.capacities import Capacities
from weft.driver.channel.credits import Credits, Post, Work, pack_ack, unpack_ack


class NeverFullData(Credits):
    """Waits for more messages than can be in flight."""

    @property
    def ack_due(self):
        return self.data.owed > self.data.capacity or self.imm.due


class NeverFullImm(Credits):
    """Waits for more acknowledgements than can be in flight."""

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
    """Acknowledges at the threshold instead of above it."""

    @property
    def ack_due(self):
        return self.data.owed >= max(1, self.data.threshold) or self.imm.owed >= max(1, self.imm.threshold)


class ForgetsAcks(Credits):
    """Never counts received acknowledgements."""

    def _post(self, work, item):
        if work is Work.IMM:
            item = pack_ack(unpack_ack(item)[0], 0)
        return super()._post(work, item)


class SwapsCounts(Credits):
    """Swaps the two counts of a received acknowledgement."""

    def received_ack(self, value):
        return super().received_ack(pack_ack(*reversed(unpack_ack(value))))


class ReportsTwice(Credits):
    """Continues to count messages after acknowledging them."""

    def _post(self, work, item):
        if work is Work.IMM:
            self.data.owed = unpack_ack(item)[0]
        return super()._post(work, item)


class CompletionIsCredit(Credits):
    """Treats a completion as an acknowledgement."""

    def sent(self, work):
        lane = self.lanes[work]
        lane.remote_remain = min(lane.capacity, lane.remote_remain + 1)
        return super().sent(work)


class AcksWithoutCredit(Credits):
    """Posts acknowledgements without regard to the peer's receives."""

    def _posts(self):
        if self.ack_due and not self.imm.remote_remain:
            self.imm.local_remain -= 1
            return [Post(Work.IMM, pack_ack(self.data.settle(), self.imm.settle()))]
        return super()._posts()


class IgnoresLocal(Credits):
    """Posts messages without regard to the requests outstanding in the send queue."""

    def _posts(self):
        posts = super()._posts()
        while self.waiting[Work.DATA] and self.data.remote_remain:
            posts.append(self._post(Work.DATA, self.waiting[Work.DATA].popleft()))
        return posts


class SeedOnly(Credits):
    """Lacks the additional rule for one acknowledgement credit."""

    @property
    def ack_due(self):
        return self.data.due or self.imm.due


def _acks(data, imm, **options):
    return Capacities(data, imm), options


# Faulty rules, the capacities and options that expose them, and a pattern of the violation.
FAULTS = (
    (NeverFullData, *_acks(2, 2), "deadlock"),
    (NeverFullImm, *_acks(2, 2), "deadlock"),
    (AnswersEachAck, *_acks(1, 3), "storm"),
    (AcksEachMessage, *_acks(2, 2), "deadlock"),
    (AtTheThreshold, *_acks(1, 3), "storm"),
    (ForgetsAcks, *_acks(2, 2), "credits not conserved"),
    (SwapsCounts, *_acks(2, 2), "the peer acknowledged|credits not conserved"),
    (ReportsTwice, *_acks(2, 2), "credits not conserved"),
    (CompletionIsCredit, *_acks(1, 2, exact=True), "credits not conserved"),
    (AcksWithoutCredit, *_acks(1, 1), "credits not conserved|the peer sent more"),
    (IgnoresLocal, *_acks(1, 2, exact=True), "below zero"),
    (SeedOnly, *_acks(1, 1), "deadlock"),
    (Credits, *_acks(2, 1, yields=(False, False)), "deadlock"),
    (Credits, *_acks(2, 1, yields=(True, True)), "deadlock"),
)
