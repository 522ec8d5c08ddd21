"""Data frames between two cards: the packets of a work descriptor, converted to bytes only when needed."""

from functools import lru_cache

from weft.hdl.contract import abi, wire

from .parse import is_host_qpn

_OPCODE = {(0, False): wire.Opcode.WRITE_ONLY, (0, True): wire.Opcode.WRITE_ONLY_IMM,
           (1, False): wire.Opcode.RETX_WRITE, (1, True): wire.Opcode.RETX_WRITE_IMM}
_AROUND = {opcode: wire.header_bytes(opcode) + wire.ICRC_BYTES for opcode in wire.DATA_OPCODES}     # bytes, no payload
_PSN_MASK, _RSN_MASK = (1 << wire.PSN_BITS) - 1, (1 << wire.RSN_BITS) - 1
_WITH_IMM = abi.WorkOpcode.WRITE_IMM


@lru_cache(maxsize=4096)
def addresses(dst_mac, src_mac):
    """Return destination and source as a frame begins; the same few begin many frames."""
    return dst_mac.to_bytes(6, "big") + src_mac.to_bytes(6, "big")


class DataFrame:
    """Packet of a work descriptor as a frame, and as the header that a card parses from it.

    ``len()`` returns the length of the frame; ``bytes()`` and subscripts build it. A card that receives the object
    reads its fields, those of :class:`~weft.model.functional.parse.RxHeader`, instead of parsing the bytes.

    Parameters
    ----------
    work : SimpleNamespace
        Unpacked WORK, or WORK_INLINE with its payload as ``data``.
    number : int
        Position of the packet in the descriptor, from 0.
    va, length : int
        Destination and bytes of the payload.
    last : bool
        It is the last packet of the descriptor.

    Attributes
    ----------
    local_va : int
        Source of the payload.
    payload : bytes
    addresses : bytes
        Destination and source, as the frame begins.
    src_ip : int
        The transmit path sets these three.
    """

    kind, reason, roce, host, ce = "DATA", abi.Reason.OK, 0, 0, 0
    __slots__ = ("_number", "ack_req", "addresses", "dest_qp", "has_imm", "length", "local_va", "opcode", "payload",
                 "psn", "retransmission", "rkey", "src_ip", "va", "work")

    def __init__(self, work, number, va, length, last):
        self.work, self._number, self.va, self.length = work, number, va, length
        self.dest_qp, self.rkey, self.retransmission = work.dqpn, work.rkey, work.retransmit
        self.psn = work.psn + number & _PSN_MASK
        self.local_va = work.local_va + va - work.remote_va
        self.has_imm, self.ack_req = last and work.opcode is _WITH_IMM, last and work.ack_req
        self.opcode = _OPCODE[self.retransmission, self.has_imm]

    @property
    def rsn(self):
        return self.work.rsn + self._number & _RSN_MASK if self.retransmission else 0

    @property
    def imm(self):
        return self.work.imm if self.has_imm else 0

    @property
    def dma_length(self):
        return self.length

    def __len__(self):
        return _AROUND[self.opcode] + self.length + -self.length % 4

    def __getitem__(self, part):
        return bytes(self)[part]

    def __bytes__(self):
        work = self.work
        extensions = wire.RETH.pack(va=self.va, rkey=self.rkey, dma_length=self.length)
        if self.retransmission:
            extensions += wire.RSNH.pack(rsn=self.rsn)
        if self.has_imm:
            extensions += wire.IMMDT.pack(imm=work.imm)
        return wire.build_frame(
            opcode=self.opcode, dst_mac=work.dst_mac, src_mac=int.from_bytes(self.addresses[6:]), src_ip=self.src_ip,
            dst_ip=work.dst_ip, sport=work.sport, dest_qp=self.dest_qp, psn=self.psn, ack_req=int(self.ack_req),
            payload=self.payload, extensions=extensions,
            tos=wire.tos_of(self.opcode, wire.ECT0 if work.ect else wire.NOT_ECT))

    def reaches(self, mac, ip, host_qpns):
        """Return whether a card with these addresses and host QPNs takes the frame as the packet that it is."""
        work = self.work
        return mac in (0, work.dst_mac) and ip in (0, work.dst_ip) and not is_host_qpn(host_qpns, self.dest_qp)


def work_frames(work):
    """Yield the packets of an unpacked WORK, cut at remote PMTU boundaries, or the one packet of a WORK_INLINE.

    Their payload and sender are not set.
    """
    if work.inline:
        yield DataFrame(work, 0, work.remote_va, work.length, True)
        return
    pmtu, at, end = wire.PMTUS[work.pmtu], work.remote_va, work.remote_va + work.length
    last = wire.packet_count(at, work.length, pmtu) - 1
    for number in range(last):
        cut = (at // pmtu + 1) * pmtu
        yield DataFrame(work, number, at, cut - at, False)
        at = cut
    yield DataFrame(work, last, at, end - at, True)
