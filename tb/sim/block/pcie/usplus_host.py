"""Host of the two cards with the unmodified cocotbext-pcie model of the hard block."""

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiStreamBus
from cocotbext.pcie.xilinx.us import UltraScalePlusPcieDevice

from weft.hdl.contract import abi
from weft.hdl.pcie.rq import RequestUser
from weft.tb.sim.pcie.hard_block import BUSES, COMPLETION_HEADERS, FROM_CARD, NONPOSTED_CREDITS, TO_CARD, options
from weft.tb.sim.pcie.host import Host
from weft.tb.sim.stream.payload import unpack


async def without_gaps(dut, prefix, straddle=False):
    """Assert that ``tvalid`` never falls inside a packet on an AXI stream to the hard block.

    The hard block nullifies such a packet (PG213).
    """
    valid, ready, last, user = (getattr(dut, f"{prefix}__{name}") for name in ("tvalid", "tready", "tlast", "tuser"))
    inside, edge = False, RisingEdge(dut.clk)
    while True:
        await edge
        if int(dut.rst.value):      # before the first clock edge in reset, signals are undefined
            inside = False
            continue
        offered = bool(int(valid.value))
        assert offered or not inside, f"{prefix}: tvalid falls inside a packet"
        if not offered or not int(ready.value):
            continue
        if straddle:
            marks = unpack(RequestUser, int(user.value))
            inside += marks.is_sop.bit_count() - marks.is_eop.bit_count()
        else:
            inside = not int(last.value)


def _give_up_alone(source):
    """Send a packet with ``discontinue`` in beats of RC that no other packet shares."""
    send = source.send

    async def send_alone(frame):
        if frame.discontinue:
            await source.wait()
        await send(frame)
        if frame.discontinue:
            await source.wait()

    source.send = send_alone


class UsplusHost(Host):
    """Host and UltraScale+ hard block at a top module with the card's PCIe ports and clock ``clk``.

    The two cards usually have this project's hard block (:mod:`weft.tb.sim.pcie.hard_block`), which simulates faster.
    This model is the reference for both. It is unmodified but for a credit limit, and therefore requires a
    configuration with ``lean=False``. It drives ``clk`` and ``rst``. An additional check asserts that ``tvalid`` never
    falls inside a packet, which the model does not check. With straddle, a discontinued completion waits until RC is
    idle, and later completions wait for it, since no TLP begins in a beat with ``discontinue`` (PG213).
    """

    def __init__(self, dut, config, rng, *, vectors, straddle=False):
        super().__init__(config, rng)
        self.dut = dut
        buses = {name: AxiStreamBus.from_prefix(dut, prefix, bus_separator="__") for name, prefix in BUSES.items()}
        device = UltraScalePlusPcieDevice(
            **options(vectors, straddle), user_clk=dut.clk, user_reset=dut.rst, **buses,
            **{name: getattr(dut, name) for name in (*FROM_CARD, *TO_CARD)})
        device.rx_buf_cplh_fc_limit = COMPLETION_HEADERS
        if straddle:
            _give_up_alone(device.rc_source)
        dut.pcie_tfc_nph_av.value = NONPOSTED_CREDITS
        device.functions[0].configure_bar(0, abi.BAR_BYTES)
        self.plug(device)
        for prefix in ("m_axis_rq", "m_axis_cc"):
            cocotb.start_soon(without_gaps(dut, prefix, straddle and prefix == "m_axis_rq"))

    async def bring_up(self, vectors=0):
        """Wait for the end of reset, then enumerate and enable the card, and program ``vectors`` interrupt vectors."""
        await FallingEdge(self.dut.rst)
        await self.start(vectors)
        self.dut.cfg_ext_tag_enable.value = int(self.device.functions[0].pcie_cap.extended_tag_field_enable)
