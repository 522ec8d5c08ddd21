"""Objects of one host in a test: PD, CQ, memory and connected QPs."""

import contextlib

from weft.driver.terms.enums import MTU, WCOpcode, WCStatus
from weft.driver.terms.errors import TimedOut
from weft.driver.terms.wc import WC
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPConnection, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.app.perf.plan import Plan
from weft.tb.app.stage.host import Host
from weft.tb.sim.pair.settings import ALL_ACCESS

EVENT_NS = 5_000      # longest wait for an event before the next poll
POLL_MAX = 256


class TestFailed(Exception):
    """Failed request, or received bytes that differ from those sent."""

    __test__ = False


class Endpoint:
    """Objects of one side, with the peer's addresses after :meth:`connect`.

    Attributes
    ----------
    mrs
        ``source`` for outgoing data and ``target`` for incoming data, if any; each QP has a slot in both.
    peer
        Address and rkey of the peer's ``mrs``.
    """

    peer: dict[str, tuple[int, int]]

    def __init__(self, host: Host, plan: Plan) -> None:
        self.host, self.plan = host, plan
        pd, slots = PD(host.context), plan.qps * plan.slot_bytes
        self.channel = CompChannel(host.context) if plan.events else None
        receives = plan.rx_depth if plan.verb == "send" else 0
        self.cq = CQ(host.context, plan.qps * (plan.tx_depth + receives + 1), None, self.channel)
        self.mrs = {name: MR(pd, slots, ALL_ACCESS) for name in plan.memory(host.side)}
        init = rc_init_attr(self.cq, max_send_wr=plan.tx_depth, max_recv_wr=receives or 1, max_send_sge=1,
                            max_recv_sge=1, max_inline_data=plan.inline_size)
        self.qps = [QP(pd, init) for _ in range(plan.qps)]
        self.index = {qp.qp_num: i for i, qp in enumerate(self.qps)}
        self._pd = pd
        self.posted = self.completed = self.received = 0      # total requests and receives
        self._progress_ns = host.now_ns

    def connect(self) -> None:
        """Bring all QPs to RTS, with the addresses that the two programs exchange."""
        self.host.send([vars(qp.connection) for qp in self.qps],
                       {name: (mr.buf, mr.rkey) for name, mr in self.mrs.items()})
        connections, self.peer = self.host.receive()
        for qp, other in zip(self.qps, connections, strict=True):
            qp.connect(QPConnection(**other), path_mtu=MTU[f"MTU_{self.plan.mtu}"], qp_access_flags=ALL_ACCESS,
                       timeout=self.plan.timeout, max_rd_atomic=self.plan.outs, min_rnr_timer=1)
        self.meet()

    def meet(self) -> None:
        """Wait until the other program reaches the same point."""
        self.host.send("here")
        self.host.receive()
        self.wait_for_change()

    def request(self, n: int, size: int, wr_id: int, *, signaled: bool, next_wr: SendWR | None = None) -> SendWR:
        """Return a send work request of QP ``n``."""
        plan, at = self.plan, n * self.plan.slot_bytes
        local, remote = ("target", "source") if plan.fetches else ("source", "target")
        mr, (address, rkey) = self.mrs[local], self.peer[remote]
        wr = SendWR(wr_id, plan.opcode, sg=[SGE(mr.buf + at, size, mr.lkey)], next_wr=next_wr,
                    send_flags=plan.flags(size, signaled=signaled), compare_add=1, swap=1)
        wr.set_wr_rdma(rkey, address + at)
        return wr

    def receive(self, n: int) -> None:
        """Post a receive on QP ``n``."""
        mr, slot_bytes = self.mrs["target"], self.plan.slot_bytes
        self.qps[n].post_recv(RecvWR(n, sg=[SGE(mr.buf + n * slot_bytes, slot_bytes, mr.lkey)]))

    def poll(self) -> list[WC]:
        """Poll completions: repost receives at once, and return completions of requests. Raises TestFailed."""
        requests = []
        for wc in self.cq.poll(POLL_MAX)[1]:
            self.wait_for_change()
            if wc.status is not WCStatus.SUCCESS:
                raise TestFailed(f"a request of host {self.host.side} ended with {wc.status.name}")
            if wc.opcode & WCOpcode.RECV:
                self.received += 1
                self.receive(self.index[wc.qp_num])
            else:
                self.completed += 1
                requests.append(wc)
        return requests

    def look(self, interval_ns: float) -> None:
        """Advance time until the next poll of memory.

        The interval is ``interval_ns``, or a hundredth of the time since the last event if that is longer.
        """
        self.host.look(max(interval_ns, (self.host.now_ns - self._progress_ns) // 100))

    def wait_for_change(self) -> None:
        """Note that data arrived or a request was posted."""
        self._progress_ns = self.host.now_ns

    def rest(self, interval_ns: int) -> None:
        """Advance time after an unsuccessful poll. Raises TestFailed if nothing has completed for too long."""
        if self.host.now_ns > self._progress_ns + self.host.silence_ns + self.plan.duration_ns:
            raise TestFailed(f"nothing completes at host {self.host.side} any more")
        if self.channel is None:
            self.look(interval_ns)
            return
        self.host.check_peer()
        self.cq.req_notify()
        if not len(self.cq):
            with contextlib.suppress(TimedOut):
                self.channel.get_cq_event(timeout_ns=EVENT_NS)
                self.cq.ack_events(1)

    def close(self) -> None:
        """Destroy everything."""
        self._pd.close()
        self.cq.close()
        if self.channel is not None:
            self.channel.close()
