"""Traffic of :mod:`~weft.tb.test.driver.channel.traffic` over functional cards whose link loses frames."""

import collections
import random

from weft.driver.terms.enums import AccessFlag, WCFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.test.driver.channel.connection import count_send
from weft.tb.test.driver.channel.traffic import ConnectionRun
from weft.tb.test.driver.channel.traffic import run as run_connections

LOSS = 0.02
DELAY_NS = 2_000
STEPS_NS = (1_000, 5_000, 20_000)     # time between two events
SENDS = (WROpcode.SEND, WROpcode.SEND_WITH_IMM)


class CountingCQ(CQ):
    """CQ that counts the polled receives, as :class:`~weft.tb.test.driver.channel.connection.MemoryCQ` does."""

    def __init__(self, context, cqe):
        super().__init__(context, cqe)
        self.taken = collections.Counter()

    def poll(self, num_entries=1):
        count, wcs = super().poll(num_entries)
        for wc in wcs:
            if wc.opcode is WCOpcode.RECV and wc.status is WCStatus.SUCCESS:
                count_send(self.taken, wc.imm_data if wc.wc_flags & WCFlags.WITH_IMM else None)
        return count, wcs


class CountingQP(QP):
    """QP with a separate MR that counts posted sends.

    Counted as by :class:`~weft.tb.test.driver.channel.connection.MemoryQP`.
    """

    def __init__(self, context, capacities, mr_bytes):
        pd = PD(context)
        self.cq, self.posted = CountingCQ(context, capacities.max_cqe), collections.Counter()
        self.mr = MR(pd, mr_bytes, AccessFlag.LOCAL_WRITE)
        super().__init__(pd, rc_init_attr(self.cq, max_send_wr=capacities.max_send_wr,
                                          max_recv_wr=capacities.max_recv_wr))

    def post_send(self, wr, bad_wr=None):
        if wr.opcode in SENDS:
            count_send(self.posted, wr.imm_data if wr.opcode is WROpcode.SEND_WITH_IMM else None)
        super().post_send(wr, bad_wr)

    @property
    def busy(self):
        """Return true while a request is outstanding or a completion was not polled."""
        return self.engine.outstanding or len(self.cq)


class CardConnectionRun(ConnectionRun):
    """:class:`ConnectionRun` over two cards. A send without a receive ends the connection: ``rnr_retry`` is 0."""

    def __init__(self, pair, *arguments, **options):
        self.pair = pair
        super().__init__(*arguments, **options)

    def connect(self, mr_bytes):
        qps = [CountingQP(context, self.capacities[0], mr_bytes) for context in self.pair.contexts]
        connections = [qp.connection for qp in qps]
        for qp, peer in zip(qps, connections[::-1], strict=True):
            qp.connect(peer, rnr_retry=0)
        return qps

    def result(self):
        total = super().result()
        for qp in self.qps:
            qp.pd.close()
            qp.cq.close()
        return total

    def extremes(self):
        assert not any(qp.sender._rnr for qp in self.qps), "a send found no receive"
        return collections.Counter()

    @property
    def busy(self):
        return any(qp.busy for qp in self.qps)

    def look(self, end):
        """Poll only if there is a completion: an empty poll costs as much."""
        if len(self.qps[end].cq):
            super().look(end)

    def move(self):
        """Let time pass."""
        loop = self.pair.loop
        for context in self.pair.contexts:
            context.progress()
        loop.run(loop.now_ns + self.rng.choice(STEPS_NS))


def run(messages, seed, loss=LOSS):
    """Run ``messages`` messages; return the counts of their events as a ``Counter``, which includes ``frames_lost``."""
    link = LinkConfig(delay_ns=DELAY_NS, loss=loss)
    pair = make_pair(ContextConfig(random=random.Random(seed)), seed=seed, forward=link, backward=link)
    total = run_connections(messages, seed, lambda *arguments,
                            **options: CardConnectionRun(pair, *arguments, **options))
    total["frames_lost"] = sum(sum(link.counters.lost.values()) for link in pair.links)
    for context in pair.contexts:
        context.close()
    return total
