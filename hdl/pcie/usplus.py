"""PCIe shim for the UltraScale+ hard block: 512 bit, with straddle on RQ and RC or without."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..part.axis import axis_signature
from ..part.counter_ports import count_outputs
from ..part.interfaces import RegisterBus
from ..part.layouts import BEAT_BITS, PushedDescriptor
from ..part.stages import SkidBuffer
from . import cq, rc, rc_straddle, rq, rq_straddle
from .bus_master_gate import BusMasterGate
from .read_tracker import ReadTracker
from .tag_limiter import TagLimiter
from .tlp import DWORD_BITS, SIZE_CODE_MAX, SIZE_CODE_WIDTH, CompletionBeat, ReadTlp, WriteTlp

FUNCTIONS = 4             # physical functions of the hard block; the card is the first
BUS_MASTER_ENABLE = 2     # bit of a function's status


def _axis(user_width):
    return axis_signature(data_width=BEAT_BITS, user_width=user_width, keep_lane_width=DWORD_BITS)


def hard_block_members():
    """Return the signature members that face the hard block."""
    return {
        "m_axis_rq": Out(_axis(rq.USER_WIDTH)),
        "s_axis_rc": In(_axis(rc.USER_WIDTH)),
        "s_axis_cq": In(_axis(cq.CQ_USER_WIDTH)),
        "m_axis_cc": Out(_axis(cq.CC_USER_WIDTH)),
        **{f"pcie_rq_seq_num{k}": In(rq.SEQUENCE_WIDTH) for k in range(2)},
        **{f"pcie_rq_seq_num_vld{k}": In(1) for k in range(2)},
        "pcie_tfc_nph_av": In(rq.NONPOSTED_WIDTH),
        "cfg_max_payload": In(SIZE_CODE_WIDTH), "cfg_max_read_req": In(SIZE_CODE_WIDTH),
        "cfg_function_status": In(16), "cfg_ext_tag_enable": In(1),
        "cfg_interrupt_msix_enable": In(FUNCTIONS), "cfg_interrupt_msix_mask": In(FUNCTIONS),
        "cfg_flr_in_process": In(FUNCTIONS), "cfg_flr_done": Out(FUNCTIONS),
    }


def connect_hard_block(m, inner, outer):
    """Connect the members of ``outer`` that face the hard block to those of ``inner``, a block in it."""
    for name, member in hard_block_members().items():
        if member.is_signature:
            connect(m, getattr(inner, name), flipped(getattr(outer, name)))
        elif member.flow is In:
            m.d.comb += getattr(inner, name).eq(getattr(outer, name))
        else:
            m.d.comb += getattr(outer, name).eq(getattr(inner, name))


class UsplusShim(wiring.Component):
    """Connects the vendor-neutral side of the card to RQ, RC, CQ and CC.

    A read takes a cycle before it comes to them. Throughput and latency of the parts:
    :class:`~weft.hdl.pcie.rq.RequestShim`, :class:`~weft.hdl.pcie.rc.CompletionShim`,
    :class:`~weft.hdl.pcie.cq.RegisterShim`; with straddle :class:`~weft.hdl.pcie.rq_straddle.StraddledRequestShim`,
    :class:`~weft.hdl.pcie.rc_straddle.StraddledCompletionShim`. Tags are the card's (the hard block must be configured
    for client tags, with extended tags when more than 32 are used).

    Parameters
    ----------
    params : CardParams

    Members
    -------
    m_axis_rq, s_axis_rc, s_axis_cq, m_axis_cc
        AXI streams of the hard block.
    cfg_max_payload, cfg_max_read_req : In(3)
        Codes of the hard block: 128 bytes << code.
    max_payload, max_read_req : Out(3)
        The same, registered and limited to legal values, for the DMA engines.
    pcie_rq_seq_num0, pcie_rq_seq_num1, pcie_rq_seq_num_vld0, pcie_rq_seq_num_vld1, pcie_tfc_nph_av
        See ``sequence`` and ``nonposted_credits`` of :class:`~weft.hdl.pcie.rq.RequestShim`.
    cfg_function_status, cfg_interrupt_msix_enable, cfg_interrupt_msix_mask, cfg_flr_in_process, cfg_flr_done
        See PG213, of all functions; the card uses the first.
    cfg_ext_tag_enable : In(1)
        Extended tag field enable of the Device Control register.
    bus_master, msix_enable, function_reset : Out(1)
        Registered. The card may be bus master; it may send interrupts; its function is being reset.
    function_reset_done : In(1)
        Strobe: the reset of the card is finished.
    i_read : In(stream.Signature(ReadTlp))
    i_write : In(stream.Signature(WriteTlp))
    o_completion : Out(stream.Signature(CompletionBeat))
    registers : Out(RegisterBus)
    o_push : Out(stream.Signature(PushedDescriptor))
    stop : In(1)
        The card reads and writes no host memory, as if it might not be bus master.
    dropped : Out(1)
        Strobe: a request of the card was dropped or ended in an error, or may have been, because the card may not be
        bus master or must stop.
    busy : Out(1)
        A request was accepted and has not left; a write may still be in the hard block.
    count_host_refused : Out(1)
        A host request was rejected.
    """

    COUNTS = {"host_refused": 1}

    def __init__(self, params):
        self._silence_log2, self._straddle = params.silence_log2, params.straddle
        super().__init__({
            **hard_block_members(),
            "max_payload": Out(SIZE_CODE_WIDTH), "max_read_req": Out(SIZE_CODE_WIDTH),
            "i_read": In(stream.Signature(ReadTlp)),
            "i_write": In(stream.Signature(WriteTlp)),
            "o_completion": Out(stream.Signature(CompletionBeat)),
            "registers": Out(RegisterBus), "o_push": Out(stream.Signature(PushedDescriptor)),
            "busy": Out(1), "stop": In(1), "dropped": Out(1),
            "bus_master": Out(1), "msix_enable": Out(1), "function_reset": Out(1), "function_reset_done": In(1),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.requests = requests = rq_straddle.StraddledRequestShim() if self._straddle else rq.RequestShim()
        m.submodules.completions = completions = (
            rc_straddle.StraddledCompletionShim() if self._straddle else rc.CompletionShim())
        m.submodules.registers = registers = cq.RegisterShim()
        m.submodules.bus_master = bus_master = BusMasterGate()
        m.submodules.tags = tags = TagLimiter()
        m.submodules.tracker = tracker = ReadTracker()
        m.submodules.reads = reads = SkidBuffer(ReadTlp)      # separates `ready` of RQ from the readers
        enable, master_q = Signal(), Signal()
        writes_lost = Signal()      # writes in the hard block may never leave it
        m.d.sync += [master_q.eq(self.bus_master), enable.eq(self.bus_master & ~self.stop)]
        m.d.comb += writes_lost.eq(master_q & ~self.bus_master & requests.busy)
        silence = Signal(self._silence_log2 + 1)
        gone = silence[-1]
        may_request, response = Signal(), Signal()
        m.d.comb += [
            may_request.eq((self.bus_master & ~self.stop) | requests.m_axis_rq.tvalid),
            response.eq(self.s_axis_rc.tvalid | self.pcie_rq_seq_num_vld0 | self.pcie_rq_seq_num_vld1),
        ]
        with m.If(may_request | response):
            m.d.sync += silence.eq(0)
        with m.Elif(~gone):
            m.d.sync += silence.eq(silence + 1)
        connect(m, flipped(self.i_read), reads.i)
        connect(m, reads.o, bus_master.i_read)
        connect(m, bus_master.o_read, tags.i_read)
        connect(m, tags.o_read, tracker.i_read)
        connect(m, tracker.o_read, requests.i_read)
        connect(m, flipped(self.i_write), bus_master.i_write)
        connect(m, bus_master.o_write, requests.i_write)
        connect(m, requests.m_axis_rq, flipped(self.m_axis_rq))
        connect(m, flipped(self.s_axis_rc), completions.s_axis_rc)
        connect(m, completions.o, tracker.i_completion)
        connect(m, tracker.o_completion, tags.i_completion)
        connect(m, tags.o_completion, bus_master.i_completion)
        connect(m, bus_master.o_completion, flipped(self.o_completion))
        connect(m, flipped(self.s_axis_cq), registers.s_axis_cq)
        connect(m, registers.m_axis_cc, flipped(self.m_axis_cc))
        connect(m, registers.registers, flipped(self.registers))
        connect(m, registers.o_push, flipped(self.o_push))
        m.d.comb += [
            self.busy.eq(reads.o.valid | requests.busy | bus_master.busy),
            self.dropped.eq(bus_master.dropped | writes_lost),
            bus_master.enable.eq(enable), requests.gone.eq(gone), tracker.gone.eq(gone),
            tags.extended.eq(self.cfg_ext_tag_enable),
            requests.nonposted_credits.eq(self.pcie_tfc_nph_av),
            requests.sequence[0].eq(self.pcie_rq_seq_num0), requests.sequence[1].eq(self.pcie_rq_seq_num1),
            requests.sequence_valid.eq(Cat(self.pcie_rq_seq_num_vld0, self.pcie_rq_seq_num_vld1)),
            self.count_host_refused.eq(registers.rejected),
        ]
        m.d.sync += [
            self.bus_master.eq(self.cfg_function_status[BUS_MASTER_ENABLE] & ~self.cfg_flr_in_process[0]),
            self.msix_enable.eq(self.cfg_interrupt_msix_enable[0] & ~self.cfg_interrupt_msix_mask[0]),
            self.function_reset.eq(self.cfg_flr_in_process[0]),
            self.cfg_flr_done.eq(self.function_reset_done),
        ]
        for given, limited in ((self.cfg_max_payload, self.max_payload), (self.cfg_max_read_req, self.max_read_req)):
            with m.If(given > SIZE_CODE_MAX):
                m.d.sync += limited.eq(SIZE_CODE_MAX)
            with m.Else():
                m.d.sync += limited.eq(given)
        return m
