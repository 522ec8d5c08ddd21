"""PCIe shim for the UltraScale+ hard block: 512 bit, no straddle."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..axis import axis_signature
from ..counting import count_outputs
from ..interfaces import RegisterBus
from ..layouts import BEAT_BITS
from . import cq, rc, rq
from .tlp import DWORD_BITS, SIZE_CODE_MAX, SIZE_CODE_WIDTH, CompletionBeat, ReadTlp, WriteTlp


def _axis(user_width):
    return axis_signature(data_width=BEAT_BITS, user_width=user_width, keep_lane_width=DWORD_BITS)


def hard_block_members():
    """Signature members that face the hard block."""
    return {
        "m_axis_rq": Out(_axis(rq.USER_WIDTH)),
        "s_axis_rc": In(_axis(rc.USER_WIDTH)),
        "s_axis_cq": In(_axis(cq.CQ_USER_WIDTH)),
        "m_axis_cc": Out(_axis(cq.CC_USER_WIDTH)),
        "cfg_max_payload": In(SIZE_CODE_WIDTH), "cfg_max_read_req": In(SIZE_CODE_WIDTH),
    }


class UsplusShim(wiring.Component):
    """Joins the vendor-neutral side of the card to RQ, RC, CQ and CC.

    Throughput and latency of the parts: :class:`~weft.hdl.pcie.rq.RequestShim`,
    :class:`~weft.hdl.pcie.rc.CompletionShim`, :class:`~weft.hdl.pcie.cq.RegisterShim`. Tags are the card's
    (the hard block must be configured for client tags, with extended tags when more than 32 are used).

    Parameters
    ----------
    params : CardParams

    Members
    -------
    m_axis_rq, s_axis_rc, s_axis_cq, m_axis_cc
        AXI streams of the hard block.
    cfg_max_payload, cfg_max_read_req : In(3)
        As the hard block gives them: 128 bytes << code.
    max_payload, max_read_req : Out(3)
        The same, registered and limited to legal values, for the DMA engines.
    i_read : In(stream.Signature(ReadTlp))
    i_write : In(stream.Signature(WriteTlp))
    o_completion : Out(stream.Signature(CompletionBeat))
    registers : Out(RegisterBus)
    busy : Out(1)
        A request was accepted and has not left on RQ.
    count_host_refused : Out(1)
        A host request was refused.
    """

    COUNTS = {"host_refused": 1}

    def __init__(self, params):
        super().__init__({
            **hard_block_members(),
            "max_payload": Out(SIZE_CODE_WIDTH), "max_read_req": Out(SIZE_CODE_WIDTH),
            "i_read": In(stream.Signature(ReadTlp)),
            "i_write": In(stream.Signature(WriteTlp)),
            "o_completion": Out(stream.Signature(CompletionBeat)),
            "registers": Out(RegisterBus), "busy": Out(1),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.requests = requests = rq.RequestShim()
        m.submodules.completions = completions = rc.CompletionShim()
        m.submodules.registers = registers = cq.RegisterShim()
        connect(m, flipped(self.i_read), requests.i_read)
        connect(m, flipped(self.i_write), requests.i_write)
        connect(m, requests.m_axis_rq, flipped(self.m_axis_rq))
        connect(m, flipped(self.s_axis_rc), completions.s_axis_rc)
        connect(m, completions.o, flipped(self.o_completion))
        connect(m, flipped(self.s_axis_cq), registers.s_axis_cq)
        connect(m, registers.m_axis_cc, flipped(self.m_axis_cc))
        connect(m, registers.registers, flipped(self.registers))
        m.d.comb += [
            self.busy.eq(requests.busy),
            self.count_host_refused.eq(registers.refused),
        ]
        for given, limited in ((self.cfg_max_payload, self.max_payload), (self.cfg_max_read_req, self.max_read_req)):
            with m.If(given > SIZE_CODE_MAX):
                m.d.sync += limited.eq(SIZE_CODE_MAX)
            with m.Else():
                m.d.sync += limited.eq(given)
        return m
