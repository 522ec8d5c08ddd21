"""The host of the two cards, with the hard block's model as its authors wrote it."""

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiStreamBus
from cocotbext.pcie.xilinx.us import UltraScalePlusPcieDevice

from weft.hdl.contract import abi
from weft.hdl.pcie.rq import RequestUser
from weft.tb.sim.pcie.hard_block import COMPLETION_HEADERS, FROM_CARD, NONPOSTED_CREDITS, TO_CARD
from weft.tb.sim.pcie.host import Host
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.sim.stream.payload import unpack

BUSES = {"rq_bus": "m_axis_rq", "rc_bus": "s_axis_rc", "cq_bus": "s_axis_cq", "cc_bus": "m_axis_cc"}


async def without_gaps(dut, prefix, straddle=False):
    """``tvalid`` of an AXI stream to the hard block never falls inside a packet: such a packet is nullified (PG213)."""
    valid, ready, last, user = (getattr(dut, f"{prefix}__{name}") for name in ("tvalid", "tready", "tlast", "tuser"))
    inside, edge = False, RisingEdge(dut.clk)
    while True:
        await edge
        if int(dut.rst.value):      # until the first edge in it nothing is defined
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
    """Let a packet with ``discontinue`` share no beat of RC."""
    send = source.send

    async def send_alone(frame):
        if frame.discontinue:
            await source.wait()
        await send(frame)
        if frame.discontinue:
            await source.wait()

    source.send = send_alone


class UsplusHost(Host):
    """A host and the UltraScale+ hard block at a top with the card's PCIe ports and clock ``clk``.

    The two cards have a hard block of this project's own (:mod:`weft.tb.sim.pcie.hard_block`), which costs less time.
    This one is the judge of both: unmodified but for a number, so its configuration has to be ``lean=False``. It drives
    ``clk`` and ``rst``. That ``tvalid`` never falls inside a packet, which the model does not ask, is asserted beside
    it. With straddle a completion that it gives up waits until RC is idle, and others for it, since nothing begins in
    a beat with ``discontinue`` (PG213).

    Parameters
    ----------
    dut
    config : HostConfig
    rng : random.Random
    vectors : int
        MSI-X vectors of the function.
    straddle : bool
        As the card has it (``CardParams.straddle``).
    """

    def __init__(self, dut, config, rng, *, vectors=8, bar_bytes=1 << 16, straddle=False):
        super().__init__(config, rng)
        self.dut = dut
        buses = {name: AxiStreamBus.from_prefix(dut, prefix, bus_separator="__") for name, prefix in BUSES.items()}
        device = UltraScalePlusPcieDevice(
            pcie_generation=3, pcie_link_width=16, user_clk_frequency=1e9 / CLOCK_PERIOD_NS, alignment="dword",
            max_payload_size=1024, enable_client_tag=True, enable_extended_tag=True,
            pf0_msix_enable=True, pf0_msix_table_size=vectors - 1,
            pf0_msix_table_bir=0, pf0_msix_table_offset=abi.MSIX_TABLE_OFFSET,
            pf0_msix_pba_bir=0, pf0_msix_pba_offset=abi.MSIX_PBA_OFFSET,
            rq_straddle=straddle, rc_4tlp_straddle=straddle,
            user_clk=dut.clk, user_reset=dut.rst, **buses,
            **{name: getattr(dut, name) for name in (*FROM_CARD, *TO_CARD)})
        device.rx_buf_cplh_fc_limit = COMPLETION_HEADERS
        if straddle:
            _give_up_alone(device.rc_source)
        dut.pcie_tfc_nph_av.value = NONPOSTED_CREDITS
        device.functions[0].configure_bar(0, bar_bytes)
        self.plug(device)
        for prefix in ("m_axis_rq", "m_axis_cc"):
            cocotb.start_soon(without_gaps(dut, prefix, straddle and prefix == "m_axis_rq"))

    async def bring_up(self, vectors=0):
        """Out of reset, enumerated, enabled; with so many interrupt vectors programmed."""
        await FallingEdge(self.dut.rst)
        await self.start(vectors)
        self.dut.cfg_ext_tag_enable.value = int(self.device.functions[0].pcie_cap.extended_tag_field_enable)
