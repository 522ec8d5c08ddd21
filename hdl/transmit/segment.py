"""Segmentation: cuts a work descriptor into packets."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import wire
from ..contract.abi import INLINE_HEAD_BYTES, INLINE_MAX, WRITES, Reason, WorkOpcode
from ..part.layouts import BEAT_BITS, INLINE_DATA, LENGTH_WIDTH, TX_SAME, WORK, WORK_INLINE, tx_segment

BEYOND_MAX = 31      # packets that may be between this block and their check


class Segmenter(wiring.Component):
    """Cuts each descriptor into packets, where the remote address is a multiple of the PMTU.

    One packet per cycle, the first one cycle after its descriptor; no bubble between descriptors.
    PSN and RSN count up from the descriptor's; the immediate and ``ack_req`` belong to the last
    packet. A length of zero is one packet. A descriptor with an unknown opcode or PMTU, too much inline data
    or a QPN beyond the table is one packet of length zero with BAD_DESCRIPTOR.

    A WORK_INLINE is never cut. An INLINE_DATA passes as a ``silent`` packet, so that it is retired in order, and
    its data are kept for the next descriptor only. A WORK_INLINE whose INLINE_DATA was lost, because the ring
    dropped it, is ``silent`` as well: it is lost, too.

    When the check has rejected a packet of the descriptor, the packet after the next is its last: the others
    are not needed. At most ``BEYOND_MAX`` packets may be on their way to the check.

    A descriptor for the pacer goes there first, and then passes like an INLINE_DATA, unless the pacer refused it.

    Parameters
    ----------
    params : CardParams
    ring : int
        ``TxPacket.ring`` of the packets: 0 SEND, 1 RETRANSMIT.

    Members
    -------
    i : In(stream.Signature(512))
        WORK, WORK_INLINE and INLINE_DATA descriptors.
    o : Out(stream.Signature(tx_segment(...)))
    o_pace : Out(stream.Signature(WORK)), refused : In(1)
        With a pacer: its descriptors, which are correct; high while it refuses the one that it accepts.
    rejected : In(1)
        The check rejected a packet and has not yet received the last one of the same descriptor.
    checked_stb : In(1)
        The check is done with the last packet of a descriptor.
    """

    def __init__(self, params, *, ring):
        if ring not in (0, 1):
            raise ValueError(f"ring is {ring}; choose 0 (SEND) or 1 (RETRANSMIT)")
        self.params, self.ring = params, ring
        self.paced = bool(params.pace_descriptors)
        super().__init__({"i": In(stream.Signature(BEAT_BITS)),
                          "o": Out(stream.Signature(tx_segment(paced=self.paced))),
                          **({"o_pace": Out(stream.Signature(WORK)), "refused": In(1)} if self.paced else {}),
                          "rejected": In(1), "checked_stb": In(1)})

    def elaborate(self, platform):
        m = Module()
        work = Signal(WORK)                  # the descriptor; addresses, length, psn and rsn advance
        space = Signal(LENGTH_WIDTH)          # bytes up to the next boundary
        reach = Signal(LENGTH_WIDTH + 1)      # bytes up to the one after that
        fits = Signal()                       # at most `space` is left
        busy, bad, silent, last, has_imm = Signal(), Signal(), Signal(), Signal(), Signal()
        wrong, is_data = Signal(), Signal()     # decided by the descriptor alone
        lost = Signal()                         # the descriptor before it is not its data
        beyond = Signal(range(BEYOND_MAX + 1))  # descriptors that were cut completely and not yet checked
        cut_short = Signal()
        opcode = Signal(8)
        kept = Signal(INLINE_DATA["data"].shape)        # data of the newest INLINE_DATA
        job = self.o.p.job

        m.d.comb += [
            bad.eq(wrong | lost), silent.eq(is_data | (lost & ~wrong)),
            last.eq(fits | cut_short | bad),
            has_imm.eq((work.opcode == WorkOpcode.WRITE_IMM) & last),
            opcode.eq(Mux(
                work.retransmit,
                Mux(has_imm, wire.Opcode.RETX_WRITE_IMM, wire.Opcode.RETX_WRITE),
                Mux(has_imm, wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.WRITE_ONLY))),
            self.i.ready.eq(~busy | (self.o.ready & last)),
            self.o.valid.eq(busy),
            job.reason.eq(Mux(bad, Reason.BAD_DESCRIPTOR, Reason.OK)),
            job.silent.eq(silent),
            self.o.p.data.eq(Cat(data.View(WORK_INLINE, work.as_value()).data, kept)),
        ]
        packet = job.packet
        m.d.comb += [packet[name].eq(work[name]) for name in TX_SAME]
        m.d.comb += [
            packet.opcode.eq(opcode),
            packet.ack_req.eq(work.ack_req & last),
            packet.has_rsn.eq(work.retransmit),
            packet.has_imm.eq(has_imm),
            packet.length.eq(Mux(bad, 0, Mux(fits, work.length, space))),
            packet.inline.eq(work.inline & (work.length != 0) & ~bad),
            packet.ring.eq(self.ring),
            packet.last.eq(last),
        ]

        # Values for the cycle of a transfer are computed in every cycle: the transfer is late.
        bytes_of = Array(wire.PMTUS.get(code, 0) for code in range(8))
        pmtu_bytes, new_bytes = Signal(LENGTH_WIDTH, name="pmtu_bytes"), Signal(LENGTH_WIDTH, name="new_bytes")
        gap, first = Signal(LENGTH_WIDTH - 1, name="gap"), Signal(LENGTH_WIDTH, name="first")
        new, new_data = data.View(WORK, self.i.payload), Signal(name="new_data")
        old_data = data.View(INLINE_DATA, work.as_value())      # the newest one stays until the next descriptor comes
        known_opcode = Cat(new.opcode == code for code in WRITES).any()
        known_pmtu = Cat(new.pmtu == code for code in wire.PMTUS).any()
        impossible = (~known_opcode | ~known_pmtu | (new.inline & (new.length > self.params.inline_bytes))
                      | new.sqpn[self.params.qpn_width:].any())
        m.d.comb += [
            pmtu_bytes.eq(bytes_of[work.pmtu]), new_bytes.eq(bytes_of[new.pmtu]),
            gap.eq(Mux(new.inline, INLINE_MAX - 1, ~new.remote_va[:len(gap)] & (new_bytes - 1))), first.eq(gap + 1),
            new_data.eq((new.opcode == WorkOpcode.INLINE_DATA) & (self.params.inline_bytes != 0)),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [
                busy.eq(~last), cut_short.eq(self.rejected & (beyond == 0) & ~last),
                # Undefined after the last packet.
                work.length.eq(work.length - space),
                work.local_va.eq(work.local_va + space),
                work.remote_va.eq(work.remote_va + space),
                work.psn.eq(work.psn + 1),
                work.rsn.eq(work.rsn + 1),
                space.eq(pmtu_bytes), reach.eq(pmtu_bytes << 1), fits.eq(work.length <= reach),
            ]
            with m.If(is_data):
                m.d.sync += kept.eq(old_data.data)
        m.d.sync += beyond.eq(beyond + (self.o.valid & self.o.ready & last) - self.checked_stb)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                work.eq(new), busy.eq(1), is_data.eq(new_data),
                space.eq(first), reach.eq((gap | new_bytes) + 1), fits.eq(new.length <= first),
                wrong.eq(impossible | new.paced),
                lost.eq(new.inline & (new.length > INLINE_HEAD_BYTES)
                        & ~(is_data & (new.sqpn == old_data.sqpn) & (new.psn == old_data.psn))),
            ]
        if self.paced:
            self._pace(m, work, silent, new.paced & ~new.inline & ~impossible)
        return m

    def _pace(self, m, work, silent, asked):
        """Pass a descriptor to the pacer, if the new one asks for it, before its packet, which is silent then."""
        waits, away = Signal(), Signal()
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [waits.eq(asked), away.eq(asked)]
        with m.If(waits):
            m.d.comb += [self.o.valid.eq(0), self.i.ready.eq(0)]
        m.d.comb += [self.o_pace.valid.eq(waits), self.o_pace.payload.eq(work)]
        with m.If(away):
            m.d.comb += silent.eq(1)
        with m.If(waits & self.o_pace.ready):
            m.d.sync += [waits.eq(0), away.eq(~self.refused)]
