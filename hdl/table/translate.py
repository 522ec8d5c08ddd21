"""Access check against QP and MR, and address translation."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import KEY_TAG_BITS, PAGE_2M, PAGE_4K, AccessFlag, QpState, Reason
from ..contract.params import exact_log2
from ..part.layouts import LENGTH_WIDTH, PAYLOAD_MAX, Segment, mr_entry, qp_entry
from .kinds import MR_TABLE, PAGE_TABLE, QP_TABLE

LOCAL_WRITE_BIT, REMOTE_WRITE_BIT = exact_log2(AccessFlag.LOCAL_WRITE), exact_log2(AccessFlag.REMOTE_WRITE)
SHIFT_4K, SHIFT_2M = exact_log2(PAGE_4K), exact_log2(PAGE_2M)


class TranslateRequest(data.Struct):
    """An access to check. With ``length`` 0 only the state of the QP is checked."""

    key: 32               # lkey or rkey
    va: 64
    length: LENGTH_WIDTH  # at most PAYLOAD_MAX; more is OUT_OF_RANGE
    need: 4               # AccessFlag bits the MR must have; the remote ones the QP too, unless the MR is a window
    qpn: 24               # all bits when receiving; the index when sending
    qp_need: 1            # 0: the QP must be able to receive (RTR, RTS); 1: to send (RTS)


class Translation(data.Struct):
    """Result of a :class:`TranslateRequest`. The segments are unused (length 0) unless ``reason`` is OK."""

    reason: 8
    segment0: Segment
    segment1: Segment     # after the page boundary, if the access crosses one
    qp_known: 1           # there is a QP, in any state and of any generation; otherwise the qp_ fields are zero
    qp_state: 3
    qp_generation: 8      # its low bits
    qp_pd: 24
    qp_access: 4
    qp_peer_ip: 32
    qp_psn_guard: 5


class Translate(wiring.Component):
    """Two-level translation with all checks, a pipeline of fixed length.

    One request every two cycles, responses in order, nine cycles after the request was accepted; only a stalled
    ``o`` makes it longer, and then the whole pipeline stops. The first error in this order counts:
    UNKNOWN_QP (in RESET), STALE_GENERATION, UNKNOWN_QP (in another state than required), BAD_KEY, WRONG_PD,
    OUT_OF_RANGE, NO_PERMISSION.

    An MR that the peer may write and the host may not is a memory window: it belongs to one QP, whose index it has in
    place of a protection domain, and is accessible independent of the access flags of that QP.

    Requests that were accepted before a table entry changed may still be checked against the old entry:
    revoking a key includes a drain of the pipelines after this block.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(TranslateRequest))
    o : Out(stream.Signature(Translation))
        No segment crosses a page of the MR.
    enable : In(1)
        While low every QP is unknown: the tables are not yet cleared after a reset.
    busy : Out(1)
        A request is in the pipeline.
    qp_read, mr_read, page_read : Out(read_port)
        To a read port of each table.
    """

    LATENCY = 9

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(TranslateRequest)),
            "o": Out(stream.Signature(Translation)),
            "enable": In(1, init=1),
            "busy": Out(1),
            "qp_read": Out(QP_TABLE.read_port(params)),
            "mr_read": Out(MR_TABLE.read_port(params)),
            "page_read": Out(PAGE_TABLE.read_port(params)),
        })

    def elaborate(self, platform):
        m = Module()
        params = self.params
        advance = Signal()
        valid = Signal(self.LATENCY + 1)  # valid[n]: stage n holds a request
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            self.o.valid.eq(valid[self.LATENCY]),
            self.busy.eq(valid.any()),
            # A request in stage 1 closes the input for one cycle: each one reads the page table twice.
            self.i.ready.eq(advance & ~valid[1]),
            valid[0].eq(self.i.valid & self.i.ready),
        ]
        with m.If(advance):
            m.d.sync += valid[1:].eq(valid[:-1])

        def stages(shape, first, last, source, name):
            """Return copies of ``source`` (a value of stage first − 1) that travel with the request."""
            copies = {first - 1: source}
            for n in range(first, last + 1):
                copies[n] = Signal(shape, name=f"{name}_{n}")
                with m.If(advance):
                    m.d.sync += copies[n].eq(copies[n - 1])
            return copies

        request = stages(TranslateRequest, 1, 8, self.i.payload, "request")

        # Stage 1 reads QP and MR, their entries are in registers in stage 3.
        m.d.comb += [
            self.qp_read.en.eq(advance), self.qp_read.index.eq(request[1].qpn),
            self.mr_read.en.eq(advance), self.mr_read.index.eq(request[1].key[KEY_TAG_BITS:]),
        ]
        qp_2 = Signal(qp_entry(params))
        qp = stages(qp_entry(params), 3, 8, qp_2, "qp")
        mr = stages(mr_entry(), 3, 5, self.mr_read.entry, "mr")
        in_table = ~(request[2].qp_need & request[2].qpn[params.qpn_width:].any()) & self.enable
        m.d.comb += qp_2.as_value().eq(Mux(in_table, self.qp_read.entry.as_value(), 0))
        offset_4, reason_4, no_permission, bad_range_4 = self._check(m, advance, request, qp, mr)
        reason = stages(8, 5, 5, reason_4, "reason")
        no_permission_5, bad_range_5 = Signal(), Signal()

        # Stage 4: the end of the access, and its beginning counted from the start of the MR's first page.
        length_bits = len(mr[4].length)
        end_5, from_page_5 = Signal(length_bits + 1), Signal(length_bits + 1)
        first_4 = Mux(mr[4].page_2m, mr[4].va[:SHIFT_2M], mr[4].va[:SHIFT_4K])
        with m.If(advance):
            m.d.sync += [
                no_permission_5.eq(no_permission),
                bad_range_5.eq(bad_range_4 | offset_4[length_bits:].any()),
                end_5.eq(offset_4[:length_bits] + request[4].length),
                from_page_5.eq(offset_4[:length_bits] + first_4),
            ]

        # Stage 5: the result of the checks, and the index of the page.
        reason_5, index_6, page_2m_6 = Signal(8), Signal(params.pte_width), Signal()
        out_of_range = request[5].length.any() & (bad_range_5 | (end_5 > mr[5].length))
        with m.If(reason[5] != Reason.OK):
            m.d.comb += reason_5.eq(reason[5])
        with m.Elif(out_of_range):
            m.d.comb += reason_5.eq(Reason.OUT_OF_RANGE)
        with m.Elif(no_permission_5):
            m.d.comb += reason_5.eq(Reason.NO_PERMISSION)
        reason = stages(8, 6, 8, reason_5, "verdict")
        page_number = Mux(mr[5].page_2m, from_page_5[SHIFT_2M:], from_page_5[SHIFT_4K:])
        with m.If(advance):
            m.d.sync += [index_6.eq(mr[5].pte_index + page_number), page_2m_6.eq(mr[5].page_2m)]
        page_2m = stages(1, 7, 8, page_2m_6, "page_2m")

        # Stage 6 reads the page of the first byte, stage 7 the next one: no request is in stage 6 then.
        index_7 = Signal(params.pte_width)
        space_7, first_length_8, rest_8 = (Signal(LENGTH_WIDTH) for _ in range(3))
        page_4k_space = PAGE_4K - request[6].va[:SHIFT_4K]
        # More than PAYLOAD_MAX is left in a 2 MiB page unless its last 4 KiB are reached.
        last_4k = request[6].va[SHIFT_4K:SHIFT_2M].all()
        with m.If(advance):
            m.d.sync += [
                index_7.eq(index_6 + 1),
                space_7.eq(Mux(page_2m_6 & ~last_4k, PAYLOAD_MAX, page_4k_space)),
                first_length_8.eq(Mux(request[7].length > space_7, space_7, request[7].length)),
                rest_8.eq(Mux(request[7].length > space_7, request[7].length - space_7, 0)),
            ]
        m.d.comb += [self.page_read.en.eq(advance), self.page_read.index.eq(Mux(valid[6], index_6, index_7))]
        page0_8 = stages(len(self.page_read.entry), 8, 8, self.page_read.entry, "page0")[8]

        with m.If(advance):
            self._answer(m, request[8], reason[8], qp[8], (page_2m[8], page0_8), (first_length_8, rest_8))
        return m

    def _check(self, m, advance, request, qp, mr):
        """Build stages 2 and 3: the checks that need at most one sum or subtraction.

        Return the offset from the MR's first byte, the reason of an error, and the errors of permission and range,
        all of stage 4.
        """
        params = self.params
        mr_in_table_3, past_end_3, too_long_3 = Signal(), Signal(), Signal()
        end = Signal(65)
        m.d.comb += end.eq(request[2].va + request[2].length)
        with m.If(advance):
            m.d.sync += [
                mr_in_table_3.eq(~request[2].key[KEY_TAG_BITS + params.mr_width:].any()),
                past_end_3.eq(end[64] & end[:64].any()),
                too_long_3.eq(request[2].length > PAYLOAD_MAX),
            ]

        offset_4 = Signal(65)  # from the MR's first byte; bit 64: before it
        no_qp, other_generation, not_ready, bad_key, wrong_pd, no_permission, bad_range_4 = (Signal() for _ in range(7))
        any_3, need_3 = request[3].length.any(), request[3].need
        window_3 = mr[3].access[REMOTE_WRITE_BIT] & ~mr[3].access[LOCAL_WRITE_BIT]
        granted_3 = mr[3].access & (qp[3].access | AccessFlag.LOCAL_WRITE | window_3.replicate(4))
        owner_3 = Mux(window_3, request[3].qpn[:params.qpn_width], qp[3].pd)
        with m.If(advance):
            m.d.sync += [
                offset_4.eq(request[3].va - mr[3].va),
                no_qp.eq(qp[3].state == QpState.RESET),
                not_ready.eq((qp[3].state != QpState.RTS) & (request[3].qp_need | (qp[3].state != QpState.RTR))),
                other_generation.eq(~request[3].qp_need & (request[3].qpn[params.qpn_width:] != qp[3].generation)),
                bad_key.eq(any_3 & ~(mr_in_table_3 & mr[3].valid & (mr[3].key_tag == request[3].key[:KEY_TAG_BITS]))),
                wrong_pd.eq(any_3 & (mr[3].pd != owner_3)),
                no_permission.eq(any_3 & (need_3 & ~granted_3).any()),
                bad_range_4.eq(past_end_3 | too_long_3),
            ]
        reason_4 = Signal(8)
        with m.If(no_qp):
            m.d.comb += reason_4.eq(Reason.UNKNOWN_QP)
        with m.Elif(other_generation):
            m.d.comb += reason_4.eq(Reason.STALE_GENERATION)
        with m.Elif(not_ready):
            m.d.comb += reason_4.eq(Reason.UNKNOWN_QP)
        with m.Elif(bad_key):
            m.d.comb += reason_4.eq(Reason.BAD_KEY)
        with m.Elif(wrong_pd):
            m.d.comb += reason_4.eq(Reason.WRONG_PD)
        return offset_4, reason_4, no_permission, bad_range_4

    def _answer(self, m, request, reason, qp, page, lengths):
        """Build stage 8: the first page, ``(page_2m, entry)``, is in a register, the second one at the port.

        ``lengths`` are those of the segments in both pages.
        """
        page_2m, page0 = page
        first_length_8, rest_8 = lengths
        va = request.va
        in_page = Mux(page_2m, Cat(va[SHIFT_4K:SHIFT_2M], page0[SHIFT_2M - SHIFT_4K:]), page0)
        next_page = Mux(page_2m, Cat(Const(0, SHIFT_2M - SHIFT_4K), self.page_read.entry[SHIFT_2M - SHIFT_4K:]),
                        self.page_read.entry)
        ok = reason == Reason.OK
        m.d.sync += [
            self.o.payload.reason.eq(reason),
            self.o.payload.segment0.address.eq(Cat(va[:SHIFT_4K], in_page)),
            self.o.payload.segment0.length.eq(Mux(ok, first_length_8, 0)),
            self.o.payload.segment1.address.eq(next_page << SHIFT_4K),
            self.o.payload.segment1.length.eq(Mux(ok, rest_8, 0)),
            self.o.payload.qp_known.eq(qp.state != QpState.RESET),
            self.o.payload.qp_state.eq(qp.state),
            self.o.payload.qp_generation.eq(qp.generation),
            self.o.payload.qp_pd.eq(qp.pd),
            self.o.payload.qp_access.eq(qp.access),
            self.o.payload.qp_peer_ip.eq(qp.peer_ip),
            self.o.payload.qp_psn_guard.eq(qp.psn_guard),
        ]
