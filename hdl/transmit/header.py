"""Header builder of data packets."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import wire
from ..contract.abi import Reason
from ..part.interfaces import Network
from ..part.layouts import BEAT_BYTES, WIRE, swap_bytes, tx_job
from ..part.stages import PipelineRegister, SkidBuffer

HEADER_BYTES_MAX = max(wire.header_bytes(opcode) for opcode in wire.DATA_OPCODES)
TTL = 64
DO_NOT_FRAGMENT = 2
PKEY = 0xFFFF
_FIXED = {"version": 4, "ihl": 5, "flags": DO_NOT_FRAGMENT, "ttl": TTL, "protocol": wire.IP_PROTO_UDP}
_HEADER = wire.IPV4.pack(**_FIXED)
FIXED_SUM = sum(int.from_bytes(_HEADER[i:i + 2], "big") for i in range(0, len(_HEADER), 2))


def tx_header(*, paced):
    """Return the shape of a packet with its headers.

    ``spill``: number of header bytes that do not fit the first beat: 6, 10 or 14; ``dropped``: the packet has a reason.
    Byte 0 of the frame is in bits 7:0 of ``header``.
    """
    return data.StructLayout({"job": tx_job(paced=paced), "dropped": 1, "header": 8 * HEADER_BYTES_MAX, "spill": 4,
                              "pad": 2})


def _sums(*, paced):
    """Return the shape of a packet with parts of its headers."""
    return data.StructLayout({"job": tx_job(paced=paced), "spill": 4, "pad": 2, "udp_length": 16, "address_sum": 19})


class HeaderBuilder(wiring.Component):
    """Ethernet, IPv4, UDP, BTH, RETH and, if requested, RSN header and immediate.

    The bytes are those of :func:`weft.hdl.contract.wire.build_frame`. One packet per cycle, latency 2.

    Parameters
    ----------
    paced : bool, optional
        There is a pacer.

    Members
    -------
    i : In(stream.Signature(tx_job(paced)))
    network : In(Network)
        The addresses may change while nothing is sent.
    o : Out(stream.Signature(tx_header(paced)))
        The header of a packet with a ``reason`` is undefined.
    """

    def __init__(self, *, paced=False):
        self.paced = paced
        super().__init__({
            "i": In(stream.Signature(tx_job(paced=paced))),
            "network": In(Network),
            "o": Out(stream.Signature(tx_header(paced=paced))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = SkidBuffer(_sums(paced=self.paced))
        m.submodules.headers = headers = PipelineRegister(tx_header(paced=self.paced))
        wiring.connect(m, headers.o, wiring.flipped(self.o))

        mac, ip = self.network.mac, self.network.ip
        packet = self.i.p.packet
        extension = 4 * packet.has_rsn + 4 * packet.has_imm
        fixed_udp = wire.UDP.size_bytes + wire.BTH.size_bytes + wire.RETH.size_bytes + wire.ICRC_BYTES
        own_sum = Signal(19)        # of the constant fields, and of IP's part of the length
        m.d.sync += own_sum.eq(ip[:16] + ip[16:] + (FIXED_SUM + wire.IPV4.size_bytes))
        pad, padded, words, others = Signal(2), Signal(), Signal(14), Signal(4)
        m.d.comb += [
            pad.eq(-packet.length[:2]), padded.eq(packet.length[:2] != 0),
            # Everything after IP is whole words: padding is the carry into one sum of them.
            others.eq(fixed_udp // 4 + packet.has_rsn + packet.has_imm),
            words.eq((Cat(padded, packet.length[2:]) + Cat(padded, others))[1:]),
            self.i.ready.eq(sums.i.ready),
            sums.i.valid.eq(self.i.valid),
            sums.i.p.job.eq(self.i.payload),
            sums.i.p.spill.eq(wire.DATA_HEADER_BYTES - BEAT_BYTES + extension),
            sums.i.p.pad.eq(pad),
            sums.i.p.udp_length.eq(words << 2),
            sums.i.p.address_sum.eq(own_sum + packet.dst_ip[:16] + packet.dst_ip[16:]),
        ]

        packet = sums.o.p.job.packet
        total_length, once = Signal(16), Signal(17)
        m.d.comb += total_length.eq(sums.o.p.udp_length + wire.IPV4.size_bytes)
        ecn = Cat(Const(0, 1), packet.ect)      # ECT(0); the low two bits of the length are 0
        total = sums.o.p.address_sum + Cat(ecn, sums.o.p.udp_length[2:])
        twice = Signal(16)
        m.d.comb += [once.eq(total[:16] + total[16:]), twice.eq(once[:16] + once[16])]

        def header(layout, **fields):
            shape = WIRE[layout.name]
            view = data.View(shape, Signal(shape.size, name=layout.name))
            m.d.comb += [view[name].eq(value) for name, value in fields.items()]
            return swap_bytes(view.as_value())

        rsn = header(wire.RSNH, rsn=packet.rsn)
        imm = header(wire.IMMDT, imm=packet.imm)
        m.d.comb += [
            sums.o.ready.eq(headers.i.ready),
            headers.i.valid.eq(sums.o.valid),
            headers.i.p.job.eq(sums.o.p.job),
            headers.i.p.dropped.eq(sums.o.p.job.reason != Reason.OK),
            headers.i.p.spill.eq(sums.o.p.spill),
            headers.i.p.pad.eq(sums.o.p.pad),
            headers.i.p.header.eq(Cat(
                header(wire.ETH, dst=packet.dst_mac, src=mac, ethertype=wire.ETHERTYPE_IPV4),
                header(wire.IPV4, tos=ecn, total_length=total_length, checksum=~twice, src=ip, dst=packet.dst_ip,
                       **_FIXED),
                header(wire.UDP, sport=packet.sport, dport=wire.ROCE_UDP_PORT, length=sums.o.p.udp_length),
                header(wire.BTH, opcode=packet.opcode, migreq=1, pad_count=sums.o.p.pad, pkey=PKEY,
                       dest_qp=packet.dqpn, ack_req=packet.ack_req, psn=packet.psn),
                header(wire.RETH, va=packet.remote_va, rkey=packet.rkey, dma_length=packet.length),
                Mux(packet.has_rsn, rsn, imm),
                imm,
            )),
        ]
        return m
