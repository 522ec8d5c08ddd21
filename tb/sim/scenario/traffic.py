"""Programs of a scenario as blocking functions: each side sends, receives, or both."""

from weft.driver.application.file_transfer import Endpoint, TransferError, post_receives, shares
from weft.driver.terms.enums import MTU, SendFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.wr import SGE, SendWR
from weft.tb.sim.pair.pair import serve_until
from weft.tb.sim.pair.settings import SERVICE_NS, SILENCE_NS
from weft.tb.sim.pair.sides import PEER

WINDOW = 16


class FixedRate:
    """Algorithm of congestion control with a constant rate, in bit/s, and limit, in bytes."""

    def __init__(self, rate, limit=1 << 40):
        self.rate, self.limit = rate, limit

    def _nothing(self, *_):
        pass

    on_ack = on_delay = on_cnp = on_loss = _nothing


def fix_rate(qp, rate, limit=1 << 40):
    """Give a QP with congestion control a constant rate and limit."""
    flow = qp.sender.flow
    flow.algorithm = FixedRate(rate, limit)
    flow._make = lambda _delay_ns: flow.algorithm
    flow._apply()
    qp.engine.wake()


class Traffic:
    """Endpoints and programs of both sides.

    ``nanoseconds`` of each sending side is the time from the start to the last acknowledgement.
    """

    def __init__(self, scenario, contexts):
        self.scenario, self.contexts = scenario, contexts
        self.endpoints, self.nanoseconds, self._done = {}, {}, set()
        self._senders = ("a", "b") if scenario.both else ("a",)

    def open(self, side):
        """Open the endpoint of a side and write its data; call it in a thread in which the driver may block."""
        scenario = self.scenario
        size = 2 * scenario.bytes if scenario.both else scenario.bytes
        endpoint = self.endpoints[side] = Endpoint(self.contexts[side], size, qps=scenario.qps,
                                                   inline=scenario.message_bytes * scenario.inline)
        if side in self._senders:
            endpoint.mr.write(self._data(side), offset=self._offset(side))

    def _offset(self, side):
        return self.scenario.bytes if side == "b" else 0

    def _data(self, side):
        return bytes((7 * at + at // 251 + ord(side)) % 256 for at in range(self.scenario.bytes))

    @property
    def attributes(self):
        """Return the attributes of the connections."""
        return {"path_mtu": MTU[f"MTU_{self.scenario.pmtu}"], "timeout": 20}

    def run(self, side):
        """Run the program of a side."""
        endpoint, peer = self.endpoints[side], self.endpoints[PEER[side]]
        if self.scenario.paced_gbps:
            for qp in endpoint.qps:
                fix_rate(qp, 1e9 * self.scenario.paced_gbps)
        receives = self.scenario.qps if self._senders != (side,) else 0
        start = endpoint.context.device.now_ns()
        todo = self._messages(endpoint, peer.offer, side) if side in self._senders else {}
        posted = dict.fromkeys(todo, 0)
        sends = 0

        def post(qp):
            nonlocal sends
            while posted[qp] < WINDOW and (wr := next(todo[qp], None)):
                qp.post_send(wr)
                posted[qp] += 1
                sends += 1

        for qp in todo:
            post(qp)
        while sends or receives:
            for wc in endpoint.cq.wait(16, SILENCE_NS):
                if wc.status is not WCStatus.SUCCESS:
                    raise TransferError(f"QP {wc.qp_num}: {wc.status.name}")
                if wc.opcode == WCOpcode.RECV_RDMA_WITH_IMM:
                    receives -= 1
                    continue
                sends -= 1
                if not sends:
                    self.nanoseconds[side] = endpoint.context.device.now_ns() - start
                qp = next(qp for qp in todo if qp.qp_num == wc.qp_num)
                posted[qp] -= 1
                post(qp)
        self._done.add(side)
        serve_until(lambda: len(self._done) == 2, endpoint.context, SERVICE_NS)     # the peer may need acknowledgements
        endpoint.context.progress()

    def post_receives(self, side):
        """Post one receive per QP for the final immediate."""
        post_receives(self.endpoints[side])

    def _messages(self, endpoint, offer, side):
        """Return an iterator over the requests of each QP."""
        at, scenario = self._offset(side), self.scenario
        flags = SendFlags.SIGNALED | (SendFlags.INLINE if scenario.inline else 0)

        def requests(offset, length):
            step = scenario.message_bytes
            for begin in range(0, length, step):
                size = min(step, length - begin)
                where = at + offset + begin
                last = begin + size == length
                wr = SendWR(wr_id=where, num_sge=1, sg=[SGE(endpoint.mr.buf + where, size, endpoint.mr.lkey)],
                            opcode=WROpcode.RDMA_WRITE_WITH_IMM if last else WROpcode.RDMA_WRITE,
                            send_flags=flags, imm_data=size)
                wr.set_wr_rdma(offer.rkey, offer.va + where)
                yield wr

        parts = shares(scenario.bytes, scenario.qps)
        return {qp: requests(*part) for qp, part in zip(endpoint.qps, parts, strict=True)}

    def problems(self):
        """Return a sentence for each side whose data did not arrive."""
        return [f"the data of {side} and its copy at {PEER[side]} differ" for side in self._senders
                if self.endpoints[PEER[side]].mr.read(self.scenario.bytes, self._offset(side)) != self._data(side)]
