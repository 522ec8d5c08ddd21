"""The sender's end of the lossy network of an :class:`~weft.tb.test.hdl.adamap.closed_loop.ClosedLoop`."""

from cocotb.triggers import RisingEdge, Timer

ASKED_MAX = 40              # outstanding packets at which the sender waits
STUCK_CYCLES = 20_000       # without any node retired


class Sender:
    """Sends originals, requested retransmissions and probes; drops, repeats and corrupts some of them."""

    def __init__(self, loop):
        self.loop, self.rng = loop, loop.rng

    def originals(self, qp, packets):
        """Send a sequence of new packets with losses of one kind; some come late."""
        rng = self.rng
        kind = rng.choice(["none", "sparse", "burst", "dense", "solid"])
        k, late = 0, []
        while k < packets:
            psn = qp.next_psn + k
            lost = {"none": 0, "sparse": 0.06, "burst": 0.05, "dense": 0.5, "solid": 0.0}[kind] > rng.random()
            if kind == "solid" and k == packets // 2:
                k += rng.choice([400, 700])
            elif lost:
                k += rng.randint(5, 40) if kind == "burst" else 1
                if rng.random() < 0.1:
                    late.append(psn)
            else:
                self.loop.request(qp, psn=psn, ack_req=int(rng.random() < 0.02))
                k += 1
        for psn in late:
            self.loop.request(qp, psn=psn)
        qp.next_psn += k

    def retransmit(self, qp, loss):
        """Send some of the requested retransmissions, in order (or nearly, if the slack allows it)."""
        rng = self.rng
        batch = [qp.todo.popleft() for _ in range(min(len(qp.todo), rng.randint(1, 30)))]
        if self.loop.slack > 2 and rng.random() < 0.5:
            for k in range(0, len(batch) - 1, 2):
                batch[k], batch[k + 1] = batch[k + 1], batch[k]
        for psn, rsn in batch:
            qp.sent_rsn = max(qp.sent_rsn, rsn + 1)
            if rng.random() < loss:
                continue
            self.send_again(qp, psn, rsn)
            if rng.random() < 0.04:
                self.send_again(qp, psn, rsn)           # duplicate
            if rng.random() < 0.02:
                self.send_again(qp, psn + 1, rsn)       # another hole, or none

    def send_again(self, qp, psn, rsn):
        self.loop.request(qp, psn=psn, rsn=rsn, retransmission=1)

    def probe(self, qp):
        self.loop.request(qp, psn=qp.next_psn, rsn=qp.sent_rsn, probe=1)

    async def judged(self, qp):
        """Wait until no packet of a QP is outstanding at the window."""
        while qp.in_flight:
            await RisingEdge(self.loop.dut.clk)

    async def settle(self, qps, loss=0.0):
        """Recover until nothing is missing; nodes must retire regularly until then."""
        loop, port = self.loop, self.loop.port
        retired, progress = loop.retired, port.now
        while True:
            for qp in qps:
                if port.asked < ASKED_MAX:
                    if qp.todo:
                        self.retransmit(qp, loss)
                    elif self.rng.random() < 0.3:
                        self.probe(qp)
            await Timer(400, "ns")
            if all(not q.todo and not q.nodes and not q.in_flight for q in qps) and loop.idle:
                return
            if loop.retired != retired:
                retired, progress = loop.retired, port.now
            left = [(q.qpn, len(q.todo), len(q.nodes), q.in_flight) for q in qps]
            assert port.now < progress + STUCK_CYCLES, f"not recovered: {left}"
