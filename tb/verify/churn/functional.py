"""Node churn in the functional model, by the million: QPs of a functional card that receives parsed headers.

Reports and packets may be late, get lost, or outlive their QP. The card is
:class:`~weft.model.functional.card.FunctionalCard` from the parsed header on. So the model's check, not this harness,
drops packets of a destroyed QP; the driver's QP table drops their reports.
"""

import heapq
from dataclasses import replace

from weft.driver.receive.hole_list import LinkDoorbell
from weft.hdl.contract import abi
from weft.model.functional.builder import NodeBuilder
from weft.model.functional.parse import RxHeader
from weft.tb.verify.churn.host_side import REORDER, HostQp, HostSide

NODE_AGE_NS = 50
LATE_PROBE = 0.002
STALE = tuple(f"drop_{reason.name.lower()}" for reason in (abi.Reason.UNKNOWN_QP, abi.Reason.STALE_GENERATION))


class NodeChurn(HostSide):
    """Card, driver and the peers of some QPs."""

    window_bits, builder_slots = 64, 4

    def __init__(self, *, seed=0, **options):
        super().__init__(seed=seed, **options)
        self.card, self.loop = self.device.card, self.device.loop
        self.card.params = replace(self.card.params, window_bits=self.window_bits, builder_slots=self.builder_slots)
        self.card.builder = NodeBuilder(self.builder_slots)
        self.card.registers |= {"reorder_distance": REORDER, "retransmit_slack": REORDER, "node_age_ns": NODE_AGE_NS}
        self.card.report = self._report
        self._card_incarnation = {}    # QPN -> incarnation that the card has

    def _command(self, opcode, **fields):
        answer = abi.RESPONSE.unpack(self.device.card.tables.command(abi.COMMAND.unpack(
            abi.COMMAND.pack(opcode=opcode, **fields))))
        assert answer.status is abi.CommandStatus.OK, answer

    def _announce(self, index, address, length, done):
        self._command(abi.CommandOpcode.EXTENT_SET, extent=index, address=address, length=length)
        done()

    def create(self, qpn):
        generation, psn, receiver = self.new_receiver(qpn)
        if receiver is None:
            return
        host = HostQp(self, qpn, generation, next(self._incarnation), receiver, psn)
        self._command(abi.CommandOpcode.QP_CREATE, qpn=self._qpn(qpn, generation), psn=psn,
                      qp_state=abi.QpState.RTS, access=abi.AccessFlag.REMOTE_WRITE)
        self._card_incarnation[qpn] = host.incarnation
        self.enter(host)

    def destroy(self, qpn):
        """Destroy a QP with linked nodes, reports in the ring and retransmissions in flight, which arrive later."""
        self._command(abi.CommandOpcode.QP_DESTROY, qpn=self._qpn(qpn, self.host[qpn].generation))
        del self._card_incarnation[qpn]
        self.leave(qpn)

    def _report(self, entry):
        qpn = abi.REPORT_EVENT.unpack(entry).qpn
        self.reported(entry, self._card_incarnation.get(qpn))

    def _ring(self, host, doorbell):
        if isinstance(doorbell, LinkDoorbell):
            name, layout, value = "link_doorbell", abi.LINK_DOORBELL, vars(doorbell)
        else:
            name, layout, value = "cum_doorbell", abi.CUM_DOORBELL, {"psn": doorbell.psn % (1 << 32)}
        word = layout.pack(qpn=host.index, generation=host.generation, **value)
        self.card.write(abi.REGISTER[name].offset, int.from_bytes(word, "little"))

    def _qpn(self, index, generation):
        return abi.make_qpn(index, generation, self.card.params.qpn_width)

    def packet(self, qpn, psn, *, generation, incarnation=None, rsn=0, kind="DATA", **flags):
        """Pass a packet of an incarnation to the card, and check whether the card accepts or drops it."""
        counters = self.card.counters
        refused = sum(counters[name] for name in STALE)
        self.card.receive_path.take(RxHeader(kind, dest_qp=self._qpn(qpn, generation), psn=psn % (1 << 24),
                                             rsn=rsn % (1 << 24), **flags), b"")
        if sum(counters[name] for name in STALE) != refused:
            self.sums["stale_dropped"] += 1
        elif incarnation != self._card_incarnation.get(qpn):
            self.sums["stale_accepts"] += 1

    def send_new(self, qpn, lost):
        """Send original packets from the peer; ``lost`` has a flag for each packet that is lost."""
        host = self.host[qpn]
        for gone in lost:
            if not gone:
                self.packet(qpn, host.next_psn, generation=host.generation, incarnation=host.incarnation)
            host.next_psn += 1

    def probe(self, qpn, rsn):
        """Send a probe, possibly late: packets requested before ``rsn`` that have not arrived count as lost again."""
        host = self.host[qpn]
        if self.random.random() < LATE_PROBE:
            self.arrives(self.now + self.random.randint(0, 300_000), host, host.next_psn, rsn, kind="PROBE")
        else:
            self.packet(qpn, host.next_psn, generation=host.generation, incarnation=host.incarnation, rsn=rsn,
                        kind="PROBE")

    def _arrive(self):
        """Deliver the next late packet."""
        at, _, (qpn, generation, incarnation, psn, rsn), flags = heapq.heappop(self._late)
        self.now = max(self.now, at)
        self.loop.run(self.now)
        if "kind" not in flags:
            flags = {"retransmission": 1}
        self.packet(qpn, psn, generation=generation, incarnation=incarnation, rsn=rsn, **flags)

    def step(self):
        """Advance time by a step: act on one QP, deliver late packets that are due, and sometimes run the driver."""
        rng = self.random
        now = self.now + rng.randint(1, 400)
        while self._late and self._late[0][0] <= now:
            self._arrive()
        self.now = now
        self.loop.run(now)
        qpn = rng.randrange(self.qps)
        host = self.host.get(qpn)
        if host is None:
            self.create(qpn)
        elif rng.random() < 0.006:
            self.destroy(qpn)
        else:
            chance = rng.random()
            if chance < 0.8:
                loss = rng.choice([0, 0.3, 0.9])
                self.send_new(qpn, [rng.random() < loss for _ in range(rng.randint(1, 3))])
            if chance > 0.8:
                self.probe(qpn, host.receiver.holes.next_rsn)
        if rng.random() < self.pace:
            self.take_reports(rng.choice([1, 4, 64]))
        if rng.random() < 0.001:
            self.pace = rng.choice([0.02, 0.3, 0.3])   # a driver that is slow for a while

    def finish(self):
        """Deliver all packets, destroy the QPs, and check that all blocks are free; return the sums as a mapping."""
        while self._late:
            self._arrive()
        for qpn in list(self.host):
            self.destroy(qpn)
        self.take_reports()
        self.sums.update({"leaks": self.leaks(), "stale_reports": self.worker.counts["stale"],
                          "matched": self.card.counters["rx_retransmissions"], **self.pool.counts})
        return self.sums


def run_churn(count, *, seed=0, **options):
    """Run until ``count`` nodes were linked and have left again, retired or with their QP; return the sums."""
    churn = NodeChurn(seed=seed, **options)
    while churn.count < count:
        churn.step()
    return churn.finish()
