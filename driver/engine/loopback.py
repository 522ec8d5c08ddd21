"""Loopback: connections between QPs of one card, carried by the host since the card does not receive its own packets.

The sender's descriptors are executed on the memory of this host, with the checks of the card, and the receiver gets the
reports that the card would write. No packet is lost or reordered.
"""

import collections
from types import SimpleNamespace

from weft.hdl.contract import abi, wire

from ..device.attached import MemoryFault

BURST = 16       # descriptors of one QP before the next QP is served
_WORD = (1 << 32) - 1


class Loopback:
    """Traffic between QPs of one card.

    Parameters
    ----------
    card : CardEngine
        Used are ``device``, ``ip``, ``qps`` and ``tables``.

    Attributes
    ----------
    frames : deque
        Control frames in flight.
    """

    def __init__(self, card):
        self.card = card
        self.frames = collections.deque()
        self._lost = {}      # sending QP -> its work that found no peer
        self._next = {}      # receiving QP -> PSN after the last packet

    def serves(self, qp):
        """Return true if the peer of a QP belongs to this card."""
        return qp.path is not None and qp.path.ip == self.card.ip

    def forget(self, qp=None):
        """Remove the state of a QP, or of all."""
        for table in (self._lost, self._next):
            if qp is None:
                table.clear()
            else:
                table.pop(qp, None)
        if qp is None:
            self.frames.clear()

    # ---------------------------------------------------------------------------------------- data

    def carry(self, qp, now):
        """Execute the work of a QP."""
        for _ in range(BURST):
            works = qp.sender.next_work() if qp.sender is not None else ()
            if not works:
                return
            self._deliver(qp, *works)
            qp.sender.on_transmitted(now)
        self.card.mark_active(qp)

    def _deliver(self, qp, work):
        if self._lost.get(qp) or not self._do(qp, work):
            self._lost.setdefault(qp, collections.deque()).append(work)

    def _peer(self, qp):
        """Return the peer of a QP, or None."""
        peer = self.card.qps.find_incarnation(qp.path.qpn)
        return peer if peer is not None and peer.path.ip == self.card.ip else None

    def _do(self, qp, work):
        """Execute one descriptor. Return false if the peer does not exist."""
        peer = self._peer(qp)
        if peer is None:
            return False
        entry, inline = self.card.tables.qps[peer.index], work.inline
        at, left, psn, pmtu = 0, work.length, work.psn & _WORD, wire.PMTUS[qp.path.mtu]
        while True:
            length = left if inline else min(left, pmtu - (work.remote_va + at) % pmtu)
            packet = SimpleNamespace(psn=psn, va=work.remote_va + at, length=length, rkey=work.rkey, inline=inline)
            if not self._packet(qp, peer, entry, packet, work.local_va + at, work.lkey):
                return True
            at, left, psn = at + length, left - length, (psn + 1) & _WORD
            if not left:
                break
        if work.last:
            self._report(peer, abi.ReportKind.MESSAGE_END, packet, imm=work.imm or 0, has_imm=int(work.imm is not None))
        return True

    def _packet(self, qp, peer, entry, packet, local_va, lkey):
        """Execute one packet. Return false if the rest of its descriptor is dropped."""
        refused = self.card.tables.refusal(qp.index, lkey, local_va, 0 if packet.inline else packet.length, 0)
        if refused is not abi.Reason.OK:
            self._report(qp, abi.ReportKind.TX_ERROR, packet, reason=refused)
            return False
        expected = self._next.setdefault(peer, peer.receiver.base & _WORD)
        if entry.qp_state is abi.QpState.ERR or packet.psn != expected:
            return False
        refused = self.card.tables.refusal(peer.index, packet.rkey, packet.va, packet.length,
                                           abi.AccessFlag.REMOTE_WRITE)
        if refused is not abi.Reason.OK:
            self._report(peer, abi.ReportKind.ERROR, packet, reason=refused)
            return False
        if packet.length:
            target, at = self._place(peer, packet.rkey, packet.va)
            try:
                target.write(at, packet.inline or self._read(qp, lkey, local_va, packet.length))
            except MemoryFault:
                self._report(qp, abi.ReportKind.TX_ERROR, packet, reason=abi.Reason.DMA_ERROR)
                return False
        self._next[peer] = (packet.psn + 1) & _WORD
        return True

    def _read(self, qp, lkey, va, length):
        """Read payload from the memory of a QP."""
        source, start = self._place(qp, lkey, va)
        return source.read(start, length)

    def _place(self, qp, key, va):
        """Return buffer and offset of an address that a QP may use."""
        if (own := qp.own_memory(key)) is not None:
            return own, va
        buffer = self.card.lender.buffer_of(key)
        return buffer, va - buffer.va

    def _report(self, qp, kind, packet, **fields):
        """Deliver to a QP the report that its card would write."""
        base = self._next.get(qp, qp.receiver.base & _WORD)
        fields = {"psn": packet.psn, "base": base, "va": packet.va, "key": packet.rkey, "length": packet.length,
                  "src_ip": self.card.ip, "reason": abi.Reason.OK, "holes": 0} | fields
        qp.on_report(kind, abi.REPORT_EVENT.unpack(abi.REPORT_EVENT.pack(kind=kind, **fields)))

    # ------------------------------------------------------------------------------ control frames

    def send_control(self, qp, frame):
        """Queue a control frame, which the peer receives in the next round."""
        self.frames.append((qp, qp.path.qpn, frame))

    def progress(self, now):
        """Deliver the control frames that were sent before this call."""
        for _ in range(len(self.frames)):
            sender, qpn, frame = self.frames.popleft()
            peer = self.card.qps.find_incarnation(qpn)
            if peer is None or peer.path.ip != self.card.ip:
                continue
            if frame.opcode is wire.Opcode.PROBE:
                self._probe(sender, peer, frame)
            else:
                peer.on_control(SimpleNamespace(**vars(frame), src_ip=self.card.ip, dest_qp=qpn, came_ns=None), now)

    def _probe(self, sender, peer, frame):
        """Deliver a probe. The sender's lost work is executed first."""
        lost = self._lost.get(sender, ())
        while lost and self._do(sender, lost[0]):
            lost.popleft()
        packet = SimpleNamespace(psn=frame.psn & _WORD, va=0, length=0, rkey=0)
        failed = self.card.tables.qps[peer.index].qp_state is abi.QpState.ERR
        self._report(peer, abi.ReportKind.PROBE, packet, rsn=frame.rsn & 0xFF_FFFF,
                     reason=abi.Reason.UNKNOWN_QP if failed else abi.Reason.OK)
