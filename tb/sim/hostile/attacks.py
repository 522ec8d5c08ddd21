"""Frames of an attacker, by kind: the card must count and drop each of them."""

from dataclasses import dataclass

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.hdl.contract.wire import Opcode, Syndrome
from weft.tb.sim.pair.settings import IP, MAC, PEER

QPN_WIDTH = preset("test").qpn_width
FREE_INDEX = (1 << QPN_WIDTH) - 1      # without a QP: drivers allocate the lowest indices first
PSNS = 1 << wire.PSN_BITS
UNKNOWN_PEER = 0x0A_00_00_99
POISON = b"\xEE"
NOISE = wire.ETH.size_bytes, 300       # range of the length of a noise frame in bytes


@dataclass(frozen=True)
class Mark:
    """Attacker's knowledge of a QP: its numbers, its expected PSNs, and memory that it allows writes to."""

    side: str
    qpn: int
    psns: range      # that may be outstanding during the attack, in either direction
    rkey: int
    va: int


class Attacker:
    """Source of frames that attack a card.

    Parameters
    ----------
    mark : Mark
        QP with an honest peer. Of the frames in that peer's name and for the QP's current incarnation, only those are
        drawn that are dropped for their PSN.
    victim : Mark
        QP whose peer the attacker impersonates; all of its ``psns`` are older than the acknowledged ones.
    """

    def __init__(self, rng, mark, victim):
        self._rng, self._mark, self._victim, self._drawn = rng, mark, victim, 0

    def draw(self, kind):
        """Return a frame of a kind of :data:`KINDS`."""
        self._drawn += 1
        return getattr(self, f"_{kind}")()

    def _frame(self, mark, opcode, *, psn=None, extensions=b"", payload=b"", **changes):
        peer = PEER[mark.side]
        return wire.build_frame(**{
            "opcode": opcode, "dst_mac": MAC[mark.side], "src_mac": MAC[peer], "src_ip": IP[peer],
            "dst_ip": IP[mark.side], "sport": 0xC000, "dest_qp": mark.qpn,
            "psn": (self._rng.choice(mark.psns) if psn is None else psn) % PSNS, "payload": payload,
            "extensions": extensions, **changes})

    def _write(self, mark, rkey=None, **changes):
        """Return a write that requests a report, with a payload from none to a whole packet."""
        payload = POISON * self._rng.choice([0, 4, 64, 64, 1024]) if rkey is None else POISON * 4
        reth = wire.RETH.pack(va=mark.va, rkey=mark.rkey if rkey is None else rkey, dma_length=len(payload))
        return self._frame(mark, Opcode.WRITE_ONLY, extensions=reth, payload=payload, ack_req=1, **changes)

    def _other_incarnation(self, mark):
        """Return the QPN of another incarnation of a QP."""
        return mark.qpn ^ self._rng.randrange(1, 1 << wire.QPN_BITS - QPN_WIDTH) << QPN_WIDTH

    def _not_the_peers(self, mark):
        """Return fields that make the QP drop a frame, alternating between source address and QPN."""
        return {"src_ip": UNKNOWN_PEER} if self._drawn % 2 else {"dest_qp": self._other_incarnation(mark)}

    def _foreign_source(self):
        return self._write(self._mark, src_ip=UNKNOWN_PEER)

    def _unknown_qp(self):
        return self._write(self._mark, dest_qp=self._mark.qpn | FREE_INDEX)

    def _old_generation(self):
        return self._write(self._mark, dest_qp=self._other_incarnation(self._mark))

    def _wrong_key(self):
        return self._write(self._victim, rkey=self._victim.rkey ^ 1)

    def _far_psn(self):
        most = 1 << wire.PSN_OUTSTANDING_DEFAULT_LOG2
        return self._write(self._mark, psn=self._mark.psns[-1] + self._rng.randrange(most, 4 * most))

    def _forged(self, opcode, extension, **changes):
        return self._frame(self._mark, opcode, extensions=extension, **self._not_the_peers(self._mark), **changes)

    def _forged_acknowledgement(self):
        syndrome = self._rng.choice([Syndrome.ACK, Syndrome.ACK, Syndrome.NAK_REMOTE_ACCESS])
        return self._forged(Opcode.ACKNOWLEDGE, wire.AETH.pack(syndrome=syndrome))

    def _forged_report(self):
        """Return a report of 20 holes, or a request for a report, each with probability one half."""
        psn, rsn = self._rng.choice(self._mark.psns), self._rng.randrange(3)
        if self._rng.random() < 0.5:
            return self._forged(Opcode.REPORT_REQUEST, wire.RSNH.pack(rsn=rsn), psn=psn)
        body = sum(k << abi.OFFSET_BITS * k for k in range(abi.LIST_HOLES))
        node = {"encoding": abi.Encoding.LIST, "count": abi.LIST_HOLES, "base_psn": psn, "rsn": rsn, "body": body}
        return self._forged(Opcode.LOSS_REPORT, wire.RSNH.pack(rsn=rsn), psn=psn, payload=abi.NODE.pack(**node))

    def _forged_limit(self):
        serial = self._rng.randrange(1, 1 << wire.LIMIT_SERIAL_BITS - 1)
        return self._forged(Opcode.RECEIVE_LIMIT, wire.LIMH.pack(limited=1, serial=serial))

    def _forged_probe(self):
        return self._forged(Opcode.PROBE, wire.RSNH.pack(rsn=self._rng.randrange(3)))

    def _forged_notification(self):
        return self._forged(Opcode.CNP, wire.CNPH.pack())

    def _bad_icrc(self):
        frame = self._write(self._mark)
        return frame[:-1] + bytes([frame[-1] ^ 1 << self._rng.randrange(8)])

    def _random_bytes(self):
        """Return a frame to this card or to the broadcast address, with an EtherType other than IPv4."""
        rng = self._rng
        to = rng.choice([MAC[self._mark.side], MAC[self._mark.side], (1 << 48) - 1])
        noise = rng.randbytes(rng.randint(*NOISE))
        kind = rng.choice([wire.ETHERTYPE_ARP, 0x86DD, rng.randrange(0x8800, 0xFFFF)])
        return wire.ETH.pack(dst=to, src=MAC[PEER[self._mark.side]], ethertype=kind) + noise

    def _runts(self):
        """Return a frame below the minimum length; half of them begin like a valid frame."""
        rng = self._rng
        frame = self._write(self._mark) if rng.random() < 0.5 else self._random_bytes()
        return frame[:rng.randint(wire.ETH.size_bytes - 4, wire.MIN_FRAME_BYTES - 1)]


DATA, BOTH = "b", "ab"      # the card that receives the honest data; both cards
RAW = ("nic_ring_full", "nic_busy")
FORGED = ("wrong_peer", "stale_generation")
# {kind: (attacked cards, counters of which one must count the frame)}; some raw frames are delivered.
KINDS = {
    "foreign_source": (DATA, ("wrong_peer",)), "unknown_qp": (DATA, ("unknown_qp",)),
    "old_generation": (DATA, ("stale_generation",)), "wrong_key": (DATA, ("bad_key",)),
    "far_psn": (DATA, ("far_psn",)),
    "forged_report": (BOTH, FORGED), "forged_acknowledgement": (BOTH, FORGED), "forged_limit": (BOTH, FORGED),
    "forged_probe": (BOTH, FORGED), "forged_notification": (BOTH, FORGED),
    "bad_icrc": (BOTH, ("bad_icrc",)), "random_bytes": (BOTH, RAW), "runts": (BOTH, (*RAW, "truncated")),
}
