"""Constraints of the Alveo U50, as XDC.

Pins, standards and clocks are from AMD's own files (`alveo-u50-xdc`, version of 2021-05-05), as contained in two
public projects, which agree: Corundum (`fpga/mqnic/Alveo/fpga_100g/fpga_au50.xdc`) and
AMD's OpenNIC (`constr/au50`). They were not tested on a card.
"""

PART = "xcu50-fsvh2104-2-e"

# Lanes of PCIe from 0 to 15 (quads 227 to 224), and of the QSFP28 from 0 to 3 (quad 131).
PCIE_RX_P = "AL2 AM4 AK4 AN2 AP4 AR2 AT4 AU2 AV4 AW2 BA2 BC2 AY4 BB4 BD4 BE6".split()
PCIE_TX_P = "Y5 AA7 AB5 AC7 AD5 AF5 AE7 AH5 AG7 AJ7 AL7 AM9 AN7 AP9 AR7 AT9".split()
QSFP_RX_P = "J45 G45 F43 E45".split()
QSFP_TX_P = "D42 C40 B42 A40".split()

# Port: pin, and further properties. For a transceiver's differential pair, only the positive pin.
PINS = {
    "pcie_refclk_p": ("AF9", ""), "pcie_refclk_n": ("AF8", ""),
    "pcie_reset_n": ("AW27", "IOSTANDARD LVCMOS18 PULLUP true"),
    "clk_100mhz_p": ("BB18", "IOSTANDARD LVDS"), "clk_100mhz_n": ("BC18", "IOSTANDARD LVDS"),
    "qsfp_refclk_p": ("N36", ""), "qsfp_refclk_n": ("N37", ""),
    "qsfp_led_act": ("E18", "IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8"),
    "qsfp_led_stat_g": ("E16", "IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8"),
    "qsfp_led_stat_y": ("F17", "IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8"),
    "hbm_cattrip": ("J18", "IOSTANDARD LVCMOS18"),     # high would switch the card's power off
    **{f"{port}[{lane}]": (pin, "") for port, pins in (
        ("pcie_rx_p", PCIE_RX_P), ("pcie_tx_p", PCIE_TX_P), ("qsfp_rx_p", QSFP_RX_P), ("qsfp_tx_p", QSFP_TX_P))
       for lane, pin in enumerate(pins)},
}

# Reference clocks: the other clocks are generated, and constrained, by the vendor's blocks.
CLOCKS_NS = {"pcie_refclk_p": 10.0, "clk_100mhz_p": 10.0, "qsfp_refclk_p": 6.206}
SLOW = ("pcie_reset_n", "qsfp_led_act", "qsfp_led_stat_g", "qsfp_led_stat_y", "hbm_cattrip")

CONFIGURATION = """\
set_property CFGBVS GND [current_design]
set_property CONFIG_VOLTAGE 1.8 [current_design]
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
set_property BITSTREAM.CONFIG.CONFIGFALLBACK ENABLE [current_design]
set_property CONFIG_MODE SPIx4 [current_design]
set_property BITSTREAM.CONFIG.SPI_BUSWIDTH 4 [current_design]
set_property BITSTREAM.CONFIG.CONFIGRATE 85.0 [current_design]
set_property BITSTREAM.CONFIG.EXTMASTERCCLK_EN DISABLE [current_design]
set_property BITSTREAM.CONFIG.SPI_FALL_EDGE YES [current_design]
set_property BITSTREAM.CONFIG.SPI_32BIT_ADDR YES [current_design]
set_property BITSTREAM.CONFIG.UNUSEDPIN PULLUP [current_design]
set_operating_conditions -design_power_budget 63
"""


def pins_xdc():
    """Return the constraints that are known before synthesis: pins and reference clocks."""
    lines = [f"# Alveo U50, {PART}", CONFIGURATION]
    for port, (pin, more) in PINS.items():
        lines.append(f"set_property -dict {{PACKAGE_PIN {pin}{f' {more}' if more else ''}}} [get_ports {{{port}}}]")
    lines += [f"create_clock -period {period} -name {port.removesuffix('_p')} [get_ports {port}]"
              for port, period in CLOCKS_NS.items()]
    lines += [f"set_false_path {'-from' if port == 'pcie_reset_n' else '-to'} [get_ports {port}]" for port in SLOW]
    return "\n".join(lines) + "\n"
