"""Connections of a card with itself: nothing that it sends comes back, so the host carries them.

Only the way is another one: the sender's descriptors are carried out on the memory of this host, checked as the card
checks them, and what the card would report of it the receiver gets. Nothing is lost, and nothing comes out of order.
"""

import collections
from types import SimpleNamespace

from weft.hdl.contract import abi, wire

BURST = 16       # descriptors of a QP before it is the turn of the next
_WORD = (1 << 32) - 1


class Loopback:
    """What goes from QPs of a card to QPs of the same card.

    Parameters
    ----------
    card : CardEngine
        It has ``device, ip, qps`` and ``tables``.

    Attributes
    ----------
    frames : deque
        Control frames on their way.
    """

    def __init__(self, card):
        self.card = card
        self.frames = collections.deque()
        self._lost = {}      # QP that sends -> its work that found nobody
        self._next = {}      # QP that receives -> PSN behind the last packet

    def serves(self, qp):
        """Whether a QP's peer is of this card."""
        return qp.path is not None and qp.path.ip == self.card.ip

    def forget(self, qp=None):
        """A QP is gone, or all of them."""
        for table in (self._lost, self._next):
            if qp is None:
                table.clear()
            else:
                table.pop(qp, None)
        if qp is None:
            self.frames.clear()

    # ---------------------------------------------------------------------------------------- data

    def carry(self, qp, now):
        """Do what a QP has to send."""
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
        """Who hears a QP, or None."""
        peer = self.card.qps.find_life(qp.path.qpn)
        return peer if peer is not None and peer.path.ip == self.card.ip else None

    def _do(self, qp, work):
        """Carry out one descriptor; false if nobody is there to take it."""
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
        """One packet; false if the rest of its descriptor goes nowhere."""
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
            target.write(at, packet.inline or self._read(qp, lkey, local_va, packet.length))
        self._next[peer] = (packet.psn + 1) & _WORD
        return True

    def _read(self, qp, lkey, va, length):
        """Bytes of a QP's own memory."""
        source, start = self._place(qp, lkey, va)
        return source.read(start, length)

    def _place(self, qp, key, va):
        """Buffer and offset of an address that a QP may use."""
        if (own := qp.own_memory(key)) is not None:
            return own, va
        buffer = self.card.lender.buffer_of(key)
        return buffer, va - buffer.va

    def _report(self, qp, kind, packet, **fields):
        """Tell a QP what its card would."""
        base = self._next.get(qp, qp.receiver.base & _WORD)
        fields = {"psn": packet.psn, "base": base, "va": packet.va, "key": packet.rkey, "length": packet.length,
                  "src_ip": self.card.ip, "reason": abi.Reason.OK, "holes": 0} | fields
        qp.on_report(kind, abi.REPORT_EVENT.unpack(abi.REPORT_EVENT.pack(kind=kind, **fields)))

    # ------------------------------------------------------------------------------ control frames

    def send_control(self, qp, frame):
        """A control frame for the peer, which gets it in the next round."""
        self.frames.append((qp, qp.path.qpn, frame))

    def progress(self, now):
        """Hand the control frames over that were sent until now."""
        for _ in range(len(self.frames)):
            sender, qpn, frame = self.frames.popleft()
            peer = self.card.qps.find_life(qpn)
            if peer is None or peer.path.ip != self.card.ip:
                continue
            if frame.opcode is wire.Opcode.PROBE:
                self._probe(sender, peer, frame)
            else:
                peer.on_control(SimpleNamespace(**vars(frame), src_ip=self.card.ip, dest_qp=qpn), now)

    def _probe(self, sender, peer, frame):
        """A probe: what got lost is found."""
        lost = self._lost.get(sender, ())
        while lost and self._do(sender, lost[0]):
            lost.popleft()
        packet = SimpleNamespace(psn=frame.psn & _WORD, va=0, length=0, rkey=0)
        failed = self.card.tables.qps[peer.index].qp_state is abi.QpState.ERR
        self._report(peer, abi.ReportKind.PROBE, packet, rsn=frame.rsn & 0xFF_FFFF,
                     reason=abi.Reason.UNKNOWN_QP if failed else abi.Reason.OK)
