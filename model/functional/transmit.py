"""Conversion of work descriptors to frames."""

from dataclasses import dataclass

from weft.hdl.contract import abi, wire

_OPCODE = {(0, False): wire.Opcode.WRITE_ONLY, (0, True): wire.Opcode.WRITE_ONLY_IMM,
           (1, False): wire.Opcode.RETX_WRITE, (1, True): wire.Opcode.RETX_WRITE_IMM}


@dataclass(slots=True)
class TxPacket:
    """Packet of a work descriptor; ``work`` holds the fields that all its packets share."""

    work: object
    psn: int
    rsn: int
    local_va: int
    remote_va: int
    length: int
    last: bool

    @property
    def with_imm(self):
        """True if the packet carries the immediate."""
        return self.last and self.work.opcode is abi.WorkOpcode.WRITE_IMM

    @property
    def opcode(self):
        """Opcode on the wire."""
        return _OPCODE[self.work.retransmit, self.with_imm]

    def frame(self, payload, *, src_mac, src_ip):
        """Return the frame of the packet."""
        work, with_imm = self.work, self.with_imm
        extensions = wire.RETH.pack(va=self.remote_va, rkey=work.rkey, dma_length=self.length)
        if work.retransmit:
            extensions += wire.RSNH.pack(rsn=self.rsn % (1 << wire.RSN_BITS))
        if with_imm:
            extensions += wire.IMMDT.pack(imm=work.imm)
        return wire.build_frame(
            opcode=self.opcode,
            dst_mac=work.dst_mac,
            src_mac=src_mac,
            src_ip=src_ip,
            dst_ip=work.dst_ip,
            sport=work.sport,
            dest_qp=work.dqpn,
            psn=self.psn,
            ack_req=int(self.last and work.ack_req),
            payload=payload,
            extensions=extensions,
        )


def work_packets(work):
    """Yield the packets of an unpacked WORK, cut at remote PMTU boundaries, or the one packet of a WORK_INLINE."""
    if work.inline:
        yield TxPacket(work, work.psn, work.rsn, 0, work.remote_va, work.length, True)
        return
    pmtu = wire.PMTUS[work.pmtu]
    count = wire.packet_count(work.remote_va, work.length, pmtu)
    at, end = work.remote_va, work.remote_va + work.length
    for i in range(count):
        cut = min((at // pmtu + 1) * pmtu, end)
        yield TxPacket(
            work,
            (work.psn + i) % (1 << 32),
            work.rsn + i,
            work.local_va + at - work.remote_va,
            at,
            cut - at,
            i == count - 1,
        )
        at = cut
