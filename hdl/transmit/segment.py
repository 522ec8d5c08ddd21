"""Cuts a work descriptor into packets."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .. import wire
from ..abi import INLINE_HEAD_BYTES, INLINE_MAX, WRITES, Reason, WorkOpcode
from ..layouts import BEAT_BITS, INLINE_DATA, LENGTH_WIDTH, WORK, WORK_INLINE, TxPacket

BEYOND_MAX = 31      # packets that may be between here and their check
PMTU_LOG2 = {code: size.bit_length() - 1 for code, size in wire.PMTUS.items()}


class TxJob(data.Struct):
    """A packet on its way to the frame builder. With a ``reason`` it never becomes a frame."""

    packet: TxPacket
    reason: 8           # abi.Reason
    qp_generation: 8    # of the local QP, once it is known
    silent: 1           # refused because an earlier packet of its descriptor was, or no packet at all: no report


class TxSegment(data.Struct):
    """A packet as it leaves its descriptor, with the payload if that is ``inline``."""

    job: TxJob
    data: BEAT_BITS     # bytes behind its length mean nothing


class Segmenter(wiring.Component):
    """Packets of each descriptor, cut where the remote address is a multiple of the PMTU.

    One packet per cycle, the first one cycle after its descriptor; no bubble between descriptors.
    PSN and RSN count up from the descriptor's; the immediate and ``ack_req`` belong to the last
    packet. A length of zero is one packet. A descriptor with an unknown opcode or PMTU, too much data inline
    or a QPN beyond the table is one packet of length zero with BAD_DESCRIPTOR.

    A WORK_INLINE is never cut. An INLINE_DATA passes as a ``silent`` packet, so that it is retired in its turn, and
    what it brings is kept for the next descriptor alone. A WORK_INLINE whose INLINE_DATA got lost, since the ring
    refused it, is ``silent`` as well: it is lost with it.

    When the check behind has refused a packet of the descriptor, the packet after the next is its last: nobody
    wants the others. At most ``BEYOND_MAX`` packets may be on their way to the check.

    Parameters
    ----------
    params : CardParams
    ring : int
        ``TxPacket.ring`` of the packets: 0 SEND, 1 RETRANSMIT.

    Members
    -------
    i : In(stream.Signature(512))
        WORK, WORK_INLINE and INLINE_DATA descriptors.
    o : Out(stream.Signature(TxSegment))
    refused : In(1)
        The check refused a packet and has not yet seen the last one of the same descriptor.
    checked_stb : In(1)
        The check is done with the last packet of a descriptor.
    """

    def __init__(self, params, *, ring):
        if ring not in (0, 1):
            raise ValueError(f"ring is {ring}; choose 0 (SEND) or 1 (RETRANSMIT)")
        self.params, self.ring = params, ring
        super().__init__({"i": In(stream.Signature(BEAT_BITS)), "o": Out(stream.Signature(TxSegment)),
                          "refused": In(1), "checked_stb": In(1)})

    def elaborate(self, platform):
        m = Module()
        work = Signal(WORK)                  # the descriptor; addresses, length, psn and rsn move on
        space = Signal(LENGTH_WIDTH)          # bytes up to the next boundary
        busy, bad, silent, last, has_imm = Signal(), Signal(), Signal(), Signal(), Signal()
        wrong, is_data = Signal(), Signal()     # of the descriptor alone
        needs, same_qp, same_psn, lost = Signal(), Signal(), Signal(), Signal()     # the one in front has its data
        beyond = Signal(range(BEYOND_MAX + 1))  # descriptors cut to their end and not yet checked
        cut_short = Signal()
        length = Signal(LENGTH_WIDTH)
        pmtu_bytes = Signal(LENGTH_WIDTH)
        opcode = Signal(8)
        kept = Signal(INLINE_DATA)              # the newest one;
        fresh = Signal()                        # the next descriptor may be its own
        job = self.o.p.job

        m.d.comb += [
            pmtu_bytes.eq(Array(wire.PMTUS.get(code, 0) for code in range(8))[work.pmtu]),
            lost.eq(~wrong & needs & ~(same_qp & same_psn)),
            bad.eq(wrong | lost), silent.eq(is_data | lost),
            last.eq((work.length <= space) | cut_short | bad),
            has_imm.eq((work.opcode == WorkOpcode.WRITE_IMM) & last),
            length.eq(Mux(bad, 0, Mux(work.length <= space, work.length, space))),
            opcode.eq(Mux(
                work.retransmit,
                Mux(has_imm, wire.Opcode.RETX_WRITE_IMM, wire.Opcode.RETX_WRITE),
                Mux(has_imm, wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.WRITE_ONLY))),
            self.i.ready.eq(~busy | (self.o.ready & last)),
            self.o.valid.eq(busy),
            job.reason.eq(Mux(bad, Reason.BAD_DESCRIPTOR, Reason.OK)),
            job.silent.eq(silent),
            self.o.p.data.eq(Cat(data.View(WORK_INLINE, work.as_value()).data, kept.data)),
        ]
        same = ("dqpn", "sqpn", "psn", "rsn", "imm", "rkey", "remote_va", "lkey", "local_va", "dst_mac", "dst_ip",
                "sport")
        packet = job.packet
        m.d.comb += [packet[name].eq(work[name]) for name in same]
        m.d.comb += [
            packet.opcode.eq(opcode),
            packet.ack_req.eq(work.ack_req & last),
            packet.has_rsn.eq(work.retransmit),
            packet.has_imm.eq(has_imm),
            packet.length.eq(length),
            packet.inline.eq(work.inline & (work.length != 0) & ~bad),
            packet.ring.eq(self.ring),
            packet.last.eq(last),
        ]

        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [
                busy.eq(~last),
                work.length.eq(work.length - length),
                work.local_va.eq(work.local_va + length),
                work.remote_va.eq(work.remote_va + length),
                work.psn.eq(work.psn + 1),
                work.rsn.eq(work.rsn + 1),
                space.eq(pmtu_bytes),
                cut_short.eq(self.refused & (beyond == 0) & ~last),
            ]
        m.d.sync += beyond.eq(beyond + (self.o.valid & self.o.ready & last) - self.checked_stb)
        with m.If(self.i.valid & self.i.ready):
            new = data.View(WORK, self.i.payload)
            new_data = Signal()
            known_opcode = Cat(new.opcode == code for code in WRITES).any()
            known_pmtu = Cat(new.pmtu == code for code in wire.PMTUS).any()
            m.d.comb += new_data.eq((new.opcode == WorkOpcode.INLINE_DATA) & (self.params.inline_bytes != 0))
            m.d.sync += [
                work.eq(new), busy.eq(1), is_data.eq(new_data), fresh.eq(new_data),
                wrong.eq(~known_opcode | ~known_pmtu | (new.inline & (new.length > self.params.inline_bytes))
                         | new.sqpn[self.params.qpn_width:].any()),
                needs.eq(new.inline & (new.length > INLINE_HEAD_BYTES)),
                same_qp.eq(fresh & (new.sqpn == kept.sqpn)), same_psn.eq(new.psn == kept.psn),
            ]
            with m.If(new_data):
                m.d.sync += kept.eq(self.i.payload)
            with m.Switch(new.pmtu):
                for code, log2 in PMTU_LOG2.items():
                    with m.Case(code):
                        m.d.sync += space.eq((1 << log2) - new.remote_va[:log2])
            with m.If(new.inline):
                m.d.sync += space.eq(INLINE_MAX)
        return m
