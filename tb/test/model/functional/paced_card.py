"""Card with a pacer whose descriptors a test writes: the driver opens the card, and its rings take them."""

from weft.driver.congestion.algorithm import NS_BITS
from weft.driver.terms.enums import MTU
from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.model.functional.pacer import OVERHEAD_BYTES
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair

Ring = abi.Ring
PMTU = 4096
LINE_GBPS = 100


def gap_of(bps):
    """Return the gap of RATE_DOORBELL for a rate in bit/s."""
    return round(NS_BITS * (1 << abi.PACE_SCALE) / bps)


class PacedCard:
    """Card of ``device_type``, with connected QPs. Its frames go nowhere.

    Attributes
    ----------
    frames : list of (time of the last byte, number of the QP, PSN, bytes of payload, retransmission)
    reports : list of unpacked REPORT_EVENT
        Of the kinds PACED and TX_ERROR.
    """

    def __init__(self, device_type, number=1, pool=64, **sizes):
        small = preset("test").with_(pace_descriptors=pool, **sizes)
        self.pair = OperationPair(1 << 20, qps=number, path_mtu=MTU.MTU_4096,
                                  pair=make_pair(device_type=device_type, preset=small))
        self.device, self.host = self.pair.pair.devices[0], self.pair.hosts[0]
        self.loop, self.card, self.engine = self.device.loop, self.device.card, self.host.context.engine
        self._number = {qp.engine.index: n for n, qp in enumerate(self.host.qps)}
        self._dqpn = {qp.qp_num: n for n, qp in enumerate(self.pair.hosts[1].qps)}
        self.psns, self.frames, self.reports = [0] * number, [], []
        self.pair.settle()
        self.device.transmit, self._report, self.card.report = self._sent, self.card.report, self._reported

    def _sent(self, frame, end=None):
        if getattr(frame, "kind", None) == "DATA":
            if end is None:
                end = self.loop.now_ns + wire.line_bytes(len(frame)) * 8 / LINE_GBPS
            self.frames.append((end, self._dqpn[frame.dest_qp], frame.psn, frame.length, frame.retransmission))

    def _reported(self, entry, mark=False):
        found = abi.REPORT_EVENT.unpack(entry)
        if found.kind in (abi.ReportKind.PACED, abi.ReportKind.TX_ERROR):
            self.reports.append(found)
        self._report(entry, mark)

    def index(self, qp):
        return self.host.qps[qp].engine.index

    def work(self, qp, length, *, again=False, psn=None, paced=1, **fields):
        """Push a descriptor of ``length`` bytes."""
        if psn is None:
            psn = self.psns[qp]
            self.psns[qp] += max(1, -(-length // PMTU))
        peer = self.pair.hosts[1]
        ring = self.engine.rings[Ring.RETRANSMIT if again else Ring.SEND]
        ring.push(abi.WORK.pack(**{
            "opcode": abi.WorkOpcode.WRITE, "pmtu": 5, "sqpn": self.index(qp), "dqpn": peer.qps[qp].qp_num,
            "local_va": self.host.mr.buf, "lkey": self.host.mr.rkey, "remote_va": peer.mr.buf, "rkey": peer.mr.rkey,
            "psn": psn, "length": length, "sport": 0xC000, "dst_ip": 2, "dst_mac": 2, "retransmit": int(again),
            "paced": paced} | fields))
        ring.ring_doorbell()

    def pace(self, qp, bps, limit=None):
        """Set the rate of a QP in bit/s, 0 for none, and the PSN of its limit."""
        if limit is not None:
            self._write("limit", abi.LIMIT_DOORBELL, qpn=self.index(qp), psn=limit % (1 << 32))
        self.set_gap(qp, gap_of(bps) if bps else 0, limited=int(limit is not None))

    def set_gap(self, qp, gap, limited=0):
        """Write the rate of a QP as RATE_DOORBELL has it."""
        self._write("rate", abi.RATE_DOORBELL, qpn=self.index(qp), gap=gap, limited=limited)

    def _write(self, name, layout, **fields):
        self.device.write64(abi.REGISTER[f"{name}_doorbell"].offset,
                            int.from_bytes(layout.pack(**fields), "little"))

    def run(self, ns, step=None):
        """Run for some time; the driver empties rings and reports."""
        end = self.loop.now_ns + ns
        while self.loop.now_ns < end:
            self.loop.run(min(end, self.loop.now_ns + (step or ns)))
            self.engine.progress()

    def rate(self, qp, skip=0):
        """Return the rate of a QP in bit/s of bytes on the line, from frame ``skip`` on."""
        found = [frame for frame in self.frames if frame[1] == qp][skip:]
        sent = sum(length + OVERHEAD_BYTES for *_, length, _ in found[1:])
        return sent * 8e9 / (found[-1][0] - found[0][0])
