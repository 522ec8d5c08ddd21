"""The card on an Alveo U50: PCIe Gen3 x16, one 100 Gb/s port with RS-FEC."""

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out, connect

from ..card import card_signature
from ..mac.edge import AT_MAC
from ..mac.reset_release import ResetRelease
from ..pcie.cq import RegisterShim
from ..verilog import CARD_MODULE
from .bar_decoder import BarDecoder
from .device_control import DeviceControl
from .mac_side import LEVELS, MAC_EVENTS, MacSide
from .registers import BoardRegisters
from .vendor import BLOCKS, CMAC, LANES, PCIE, Block, ila, stub

TOP = "weft_u50"
SIGNATURE = card_signature(mac_clock=True)
QSFP_LANES = 4
LOOPBACK = 0b010          # near-end PMA, of each lane
FORWARD = ("tdata", "tkeep", "tlast", "tuser", "tvalid", "tready")
ILA_CARD, ILA_MAC = "ila_card", "ila_mac"
# Widths of the probes of `_debug`.
PROBES = {ILA_CARD: (1, 6, 6, 6, 6, len(LEVELS)), ILA_MAC: (1, 4, 4, len(LEVELS), 2)}


def card_block():
    """Return the card as a block: its ports by their names in Verilog."""
    directions = {In: {}, Out: {}}
    for path, member, value in SIGNATURE.flatten(SIGNATURE.create()):
        if path != ("s_axis_rx", "tready"):                # a constant of the card, which makes no port
            directions[member.flow]["__".join(map(str, path))] = len(Value.cast(value))
    return Block(inputs=directions[In], outputs=directions[Out], clock="sync",
                 asynchronous=frozenset(("clk", "rst", "mac_clk", "mac_rst")),
                 clocks={port: "mac" for direction in directions.values() for port in direction
                         if port.startswith(AT_MAC)})


def stubs_text(*, debug=False):
    """Return Verilog of empty modules instead of the card and of the vendor's blocks."""
    blocks = {CARD_MODULE: card_block(), **BLOCKS}
    if debug:
        blocks |= {name: ila(widths) for name, widths in PROBES.items()}
    quiet = [f"/* verilator lint_{{}} {warning} */".format for warning in ("UNDRIVEN", "UNUSEDPARAM")]
    return "\n".join([*(declare("off") for declare in quiet), *(stub(name, block) for name, block in blocks.items()),
                      *(declare("on") for declare in quiet), ""])


class U50(wiring.Component):
    """Top module of the Alveo U50.

    The card is an instance of the module that ``weft verilog --mac-clock`` writes, unchanged.

    Domains: ``sync``, the card's, is the user clock of the PCIe block, 250 MHz; ``mac`` is CMAC's, 322.265625 MHz;
    ``init``, 100 MHz from the board's oscillator, starts the transceivers and drives nothing else.

    Parameters
    ----------
    debug : bool
        Add two logic analysers (ILA) on the streams of both sides.
    """

    def __init__(self, *, debug=False):
        self._card, self._debug_wanted = SIGNATURE, debug
        super().__init__({
            "pcie_rx_p": In(LANES), "pcie_rx_n": In(LANES), "pcie_tx_p": Out(LANES), "pcie_tx_n": Out(LANES),
            "pcie_refclk_p": In(1), "pcie_refclk_n": In(1), "pcie_reset_n": In(1),
            "clk_100mhz_p": In(1), "clk_100mhz_n": In(1),
            "qsfp_rx_p": In(QSFP_LANES), "qsfp_rx_n": In(QSFP_LANES),
            "qsfp_tx_p": Out(QSFP_LANES), "qsfp_tx_n": Out(QSFP_LANES),
            "qsfp_refclk_p": In(1), "qsfp_refclk_n": In(1),
            "qsfp_led_act": Out(1), "qsfp_led_stat_g": Out(1), "qsfp_led_stat_y": Out(1), "hbm_cattrip": Out(1)})

    def elaborate(self, platform):
        m = Module()
        for domain in ("sync", "mac"):
            m.domains += ClockDomain(domain)
        m.domains.init = ClockDomain("init", reset_less=True)
        self.pcie, self.cmac = ({port: Signal(width, name=f"{name}_{port}") for port, width in
                                 {**BLOCKS[block].inputs, **BLOCKS[block].outputs}.items()}
                                for name, block in (("pcie", PCIE), ("cmac", CMAC)))
        self.card = self._card.create(path=("card",))
        m.submodules.registers = self.registers = BoardRegisters()
        m.submodules.mac_side = self.mac_side = MacSide()
        self._instance(m, "pcie", PCIE, self.pcie)
        self._instance(m, "cmac", CMAC, self.cmac)
        self._instance_of_card(m)
        self._clocks(m)
        self._wire_pcie(m)
        self._wire_mac(m)
        if self._debug_wanted:
            self._debug(m)
        return m

    def _instance(self, m, name, block, signals, description=None):
        what = description or BLOCKS[block]
        setattr(m.submodules, name, Instance(
            block,
            **{f"p_{key}": value for key, value in what.attributes.items()},
            **{f"i_{port}": signals[port] for port in what.inputs},
            **{f"i_{port}": Const(value, width) for port, (width, value) in what.constants.items()},
            **{f"o_{port}": signals[port] for port in what.outputs if port in signals}))

    def _instance_of_card(self, m):
        wires = {"__".join(map(str, path)): Value.cast(value) for path, _, value in self._card.flatten(self.card)}
        m.d.comb += [self.card.clk.eq(ClockSignal()), self.card.rst.eq(ResetSignal()),
                     self.card.mac_clk.eq(ClockSignal("mac")), self.card.mac_rst.eq(ResetSignal("mac"))]
        self._instance(m, "card", CARD_MODULE, wires, card_block())

    def _clocks(self, m):
        pcie, cmac = self.pcie, self.cmac
        m.submodules.card_release = card_release = ResetRelease("sync")
        m.submodules.mac_release = mac_release = ResetRelease("mac")
        m.submodules.init_release = init_release = ResetRelease("init")
        oscillator, init_clk = Signal(), Signal()
        self._instance(m, "pcie_refclk", "IBUFDS_GTE4", {"I": self.pcie_refclk_p, "IB": self.pcie_refclk_n,
                                                         "O": pcie["sys_clk_gt"], "ODIV2": pcie["sys_clk"]})
        self._instance(m, "pcie_reset_buffer", "IBUF", {"I": self.pcie_reset_n, "O": pcie["sys_reset"]})
        self._instance(m, "oscillator_buffer", "IBUFDS",
                       {"I": self.clk_100mhz_p, "IB": self.clk_100mhz_n, "O": oscillator})
        self._instance(m, "init_buffer", "BUFG", {"I": oscillator, "O": init_clk})
        m.d.comb += [
            ClockSignal("sync").eq(pcie["user_clk"]), ResetSignal("sync").eq(card_release.rst),
            ClockSignal("mac").eq(cmac["gt_txusrclk2"]), ResetSignal("mac").eq(mac_release.rst),
            ClockSignal("init").eq(init_clk),
            card_release.arst.eq(pcie["user_reset"]),
            mac_release.arst.eq(cmac["usr_tx_reset"] | cmac["usr_rx_reset"]),
            init_release.arst.eq(self.registers.mac_reset),
            cmac["init_clk"].eq(init_clk), cmac["sys_reset"].eq(init_release.rst),
            cmac["rx_clk"].eq(ClockSignal("mac")),
            cmac["gt_ref_clk_p"].eq(self.qsfp_refclk_p), cmac["gt_ref_clk_n"].eq(self.qsfp_refclk_n),
            cmac["gt_loopback_in"].eq(Cat(*[bit & self.registers.loopback for bit in Const(LOOPBACK, 3)] * QSFP_LANES)),
        ]

    def _wire_pcie(self, m):
        pcie, card = self.pcie, self.card
        m.submodules.bars = bars = BarDecoder()
        m.submodules.register_shim = shim = RegisterShim(windows=False)
        m.submodules.device_control = control = DeviceControl()
        m.submodules.link_up_cdc = FFSynchronizer(pcie["user_lnk_up"], link_up := Signal())
        m.submodules.power_good_cdc = FFSynchronizer(self.cmac["gt_powergoodout"], power_good := Signal(QSFP_LANES))
        connect(m, bars.board_cq, shim.s_axis_cq)
        connect(m, shim.m_axis_cc, bars.board_cc)
        connect(m, shim.registers, self.registers.bus)
        self._stream(m, bars.card_cq, card.s_axis_cq)
        self._stream(m, card.m_axis_cc, bars.card_cc)
        for name, side, ours in (("m_axis_cq", bars.s_axis_cq, False), ("s_axis_cc", bars.m_axis_cc, True),
                                 ("s_axis_rq", card.m_axis_rq, True), ("m_axis_rc", card.s_axis_rc, False)):
            for field in FORWARD:
                there = pcie[f"{name}_{field}"]
                there = there[0] if field == "tready" else there   # an s_axis port has several identical copies
                here = getattr(side, field)
                m.d.comb += there.eq(here) if ours != (field == "tready") else here.eq(there)
        for name in ("pcie_rq_seq_num0", "pcie_rq_seq_num1", "pcie_rq_seq_num_vld0", "pcie_rq_seq_num_vld1",
                     "pcie_tfc_nph_av", "cfg_max_payload", "cfg_max_read_req", "cfg_function_status",
                     "cfg_interrupt_msix_enable", "cfg_interrupt_msix_mask", "cfg_flr_in_process"):
            m.d.comb += getattr(card, name).eq(pcie[name])
        m.d.comb += [
            pcie["cfg_flr_done"].eq(card.cfg_flr_done), card.cfg_ext_tag_enable.eq(control.cfg_ext_tag_enable),
            *[pcie[name].eq(getattr(control, name)) for name in ("cfg_mgmt_addr", "cfg_mgmt_read")],
            *[getattr(control, name).eq(pcie[name]) for name in ("cfg_mgmt_read_data", "cfg_mgmt_read_write_done")],
            pcie["pci_exp_rxp"].eq(self.pcie_rx_p), pcie["pci_exp_rxn"].eq(self.pcie_rx_n),
            self.pcie_tx_p.eq(pcie["pci_exp_txp"]), self.pcie_tx_n.eq(pcie["pci_exp_txn"]),
            self.registers.status.eq(Cat(self.mac_side.status, power_good.all(), link_up)),
        ]

    def _wire_mac(self, m):
        cmac, side, registers, card = self.cmac, self.mac_side, self.registers, self.card
        for field in FORWARD:
            ours, theirs = getattr(card.m_axis_tx, field), cmac[f"tx_axis_{field}"]
            m.d.comb += ours.eq(theirs) if field == "tready" else theirs.eq(ours[:1] if field == "tuser" else ours)
            if field != "tready":
                m.d.comb += getattr(card.s_axis_rx, field).eq(cmac[f"rx_axis_{field}"])
        m.d.comb += [
            side.levels.eq(Cat(*(cmac[f"stat_{name}"] for name in LEVELS))),
            *[side.events[name].eq(cmac[f"stat_{name}"]) for name, _, _ in MAC_EVENTS],
            side.events.tx_overflow.eq(cmac["tx_ovfout"]), side.events.tx_underflow.eq(cmac["tx_unfout"]),
            *[side.events[name].eq(getattr(card, f"mac_{name}")) for name in ("tx_dropped", "tx_aborted",
                                                                             "rx_dropped")],
            card.mac_up.eq(side.tx_enable),
            cmac["ctl_tx_enable"].eq(side.tx_enable), cmac["ctl_tx_send_rfi"].eq(~side.tx_enable),
            side.counter_address.eq(registers.counter_address), side.counter_stb.eq(registers.counter_stb),
            registers.counter_data.eq(side.counter_data), registers.counter_ack.eq(side.counter_ack),
            cmac["gt_rxp_in"].eq(self.qsfp_rx_p), cmac["gt_rxn_in"].eq(self.qsfp_rx_n),
            self.qsfp_tx_p.eq(cmac["gt_txp_out"]), self.qsfp_tx_n.eq(cmac["gt_txn_out"]),
            self.qsfp_led_stat_g.eq(registers.status[0]), self.qsfp_led_stat_y.eq(~registers.status[0]),
            self.qsfp_led_act.eq(registers.status[-1]), self.hbm_cattrip.eq(0),
        ]

    @staticmethod
    def _stream(m, source, sink):
        """Connect two streams field by field: the card's members are plain signals here."""
        for field in FORWARD:
            ends = getattr(source, field), getattr(sink, field)
            m.d.comb += ends[0].eq(ends[1]) if field == "tready" else ends[1].eq(ends[0])

    def _debug(self, m):
        cmac, card = self.cmac, self.card

        def flow(stream, user):
            return Cat(stream.tvalid, stream.tready, stream.tlast, stream.tuser[:3] if user else stream.tuser[0])

        streams = (card.m_axis_rq, card.s_axis_rc, card.s_axis_cq, card.m_axis_cc)
        probes = {
            ILA_CARD: (ResetSignal(), *(flow(stream, len(stream.tuser) > 2) for stream in streams),
                       self.registers.status[:len(LEVELS)]),
            ILA_MAC: (ResetSignal("mac"), *(
                Cat(cmac[f"{name}_tvalid"], cmac[f"{name}_tlast"], cmac[f"{name}_tuser"], more) for name, more in
                (("tx_axis", cmac["tx_axis_tready"]), ("rx_axis", Const(0, 1)))),
                self.mac_side.levels, Cat(cmac["tx_ovfout"], cmac["tx_unfout"]))}
        for name, domain in ((ILA_CARD, "sync"), (ILA_MAC, "mac")):
            signals = {"clk": ClockSignal(domain)}
            for k, (probe, width) in enumerate(zip(probes[name], PROBES[name], strict=True)):
                signals[f"probe{k}"] = Signal(width, name=f"{name}_probe{k}")
                m.d.comb += signals[f"probe{k}"].eq(probe)
            self._instance(m, name, name, signals, ila(PROBES[name]))
