"""Files of a Vivado project, and the script that creates and builds it in batch mode."""

from dataclasses import replace

from ..contract.abi import MSIX_PBA_OFFSET, MSIX_TABLE_OFFSET
from ..contract.pci import GEN3, Bar, PciFunction, card_function
from ..mac.crossings import crossings_xdc
from ..mac.rx_crossing import FRAME_BYTES
from ..verilog import CARD_MODULE, rtlil_text, verilog_text
from ..verilog.state_names import without_enums
from .bar_decoder import BOARD_BAR
from .constraints import PART, pins_xdc
from .crossings import CROSSINGS
from .registers import BAR_BYTES
from .u50 import ILA_CARD, ILA_MAC, PROBES, TOP, U50
from .vendor import CMAC, PCIE

SPEEDS = {GEN3: "8.0_GT/s"}


def board_function(params) -> PciFunction:
    """Return the PCI function of the board: the card's, with the registers of the board in another BAR."""
    card = card_function(params)
    return replace(card, bars=(*card.bars, Bar(BOARD_BAR, BAR_BYTES)))


def _bar_settings(function):
    """Return the settings of the BARs. BAR 0 is enabled by default."""
    for bar in function.bars:
        name = f"pf0_bar{bar.index}"
        if bar.index:
            yield f"{name}_enabled", "true"
        yield f"{name}_64bit", str(bar.is_64bit).lower()
        if bar.is_64bit:
            yield f"{name}_prefetchable", str(bar.prefetchable).lower()
        yield f"{name}_scale", "Kilobytes"
        yield f"{name}_size", str(bar.size // 1024)


def pcie_settings(params):
    """Return the settings of pcie4c_uscale_plus that the card requires, see the integrator's guide."""
    straddle, function = str(params.straddle).lower(), board_function(params)
    return {
        "mode_selection": "Advanced", "PL_LINK_CAP_MAX_LINK_SPEED": SPEEDS[function.link_speed],
        "PL_LINK_CAP_MAX_LINK_WIDTH": f"X{function.link_width}",
        "axisten_if_width": "512_bit", "axisten_freq": "250", "axisten_if_enable_client_tag": "true",
        "AXISTEN_IF_EXT_512_CQ_STRADDLE": "false", "AXISTEN_IF_EXT_512_CC_STRADDLE": "false",
        "AXISTEN_IF_EXT_512_RQ_STRADDLE": straddle, "AXISTEN_IF_EXT_512_RC_STRADDLE": "false",
        "AXISTEN_IF_EXT_512_RC_4TLP_STRADDLE": straddle,
        "extended_tag_field": str(function.extended_tags).lower(),
        "pf0_dev_cap_max_payload": f"{function.max_payload_bytes}_bytes",
        "vendor_id": f"{function.vendor_id:04X}", "PF0_DEVICE_ID": f"{function.device_id:04X}",
        "PF0_Use_Class_Code_Lookup_Assistant": "false", "PF0_CLASS_CODE": f"{function.class_code:06X}",
        **dict(_bar_settings(function)),
        "pf0_msi_enabled": "false", "pf0_msix_enabled": "true", "MSI_X_OPTIONS": "MSI-X_External",
        "PF0_MSIX_CAP_TABLE_SIZE": f"{function.msix_vectors - 1:03X}",
        "PF0_MSIX_CAP_TABLE_BIR": "BAR_1:0", "PF0_MSIX_CAP_TABLE_OFFSET": f"{MSIX_TABLE_OFFSET:08X}",
        "PF0_MSIX_CAP_PBA_BIR": "BAR_1:0", "PF0_MSIX_CAP_PBA_OFFSET": f"{MSIX_PBA_OFFSET:08X}",
    }


VIVADO = (2022, 2)
CHECKS = "\n".join([
    r"regexp {^(\d+)\.(\d+)} [version -short] found year release",
    f"if {{$year * 10 + $release < {VIVADO[0] * 10 + VIVADO[1]}}} {{ "
    f'error "Vivado {VIVADO[0]}.{VIVADO[1]} or later is needed; this is [version -short]" }}',
    f"if {{[llength [get_parts -quiet {PART}]] == 0}} {{ "
    f'error "this Vivado has no part {PART}: add the Alveo cards to its installation" }}', ""])
PROGRAM = """\
# Loads the bitstream of build.tcl into the first Alveo U50 of hw_server, until the next power cycle. In this folder:
#   vivado -mode batch -source program.tcl
# The host must enumerate its PCIe devices again afterwards: a warm reboot, or remove the device and rescan. Never run.
set bitstream [glob -nocomplain weft_u50/weft_u50.runs/impl_1/*.bit]
if {[llength $bitstream] != 1} { error "no bitstream: run build.tcl first" }
open_hw_manager
connect_hw_server
open_hw_target
set devices [get_hw_devices -quiet xcu50*]
if {[llength $devices] == 0} { error "no Alveo U50 at this hw_server: it shows [get_hw_devices -quiet]" }
current_hw_device [lindex $devices 0]
set_property PROGRAM.FILE [lindex $bitstream 0] [current_hw_device]
program_hw_devices [current_hw_device]
puts "programmed: [current_hw_device]"
"""
CMAC_SETTINGS = {
    "CMAC_CAUI4_MODE": "1", "NUM_LANES": "4x25", "GT_REF_CLK_FREQ": "161.1328125", "USER_INTERFACE": "AXIS",
    "GT_DRP_CLK": "100.00", "TX_FLOW_CONTROL": "0", "RX_FLOW_CONTROL": "0", "INCLUDE_RS_FEC": "1",
    "ENABLE_AXI_INTERFACE": "0", "INCLUDE_STATISTICS_COUNTERS": "0",
    "TX_FCS_INS_ENABLE": "1", "RX_FCS_DEL_ENABLE": "1",
    "RX_MIN_PACKET_LEN": "64", "RX_MAX_PACKET_LEN": str(FRAME_BYTES),
    "CMAC_CORE_SELECT": "CMACE4_X0Y4", "GT_GROUP_SELECT": "X0Y28~X0Y31",
    **{f"LANE{lane}_GT_LOC": f"X0Y{27 + lane}" for lane in range(1, 5)}, "ENABLE_PIPELINE_REG": "1",
}


def _create(kind, name, settings):
    lines = [f"create_ip -name {kind} -vendor xilinx.com -library ip -module_name {name}",
             "set_property -dict [list \\"]
    lines += [f"  CONFIG.{key} {{{value}}} \\" for key, value in settings.items()]
    return "\n".join([*lines, f"] [get_ips {name}]", ""])


def script(params, *, debug=False):
    """Return ``build.tcl``: run it by ``vivado -mode batch -source build.tcl`` in the folder of the files."""
    blocks = [_create("pcie4c_uscale_plus", PCIE, pcie_settings(params)), _create("cmac_usplus", CMAC, CMAC_SETTINGS)]
    if debug:
        blocks += [_create("ila", name, {
            "C_NUM_OF_PROBES": len(PROBES[name]), "C_DATA_DEPTH": 2048,
            **{f"C_PROBE{k}_WIDTH": width for k, width in enumerate(PROBES[name])}}) for name in (ILA_CARD, ILA_MAC)]
    return "\n".join([
        f"# Makes the project weft_u50 for {PART} and builds its bitstream.",
        "# A setting that this version of a block does not know stops the script: send the message back. CMAC needs a",
        "# licence, which AMD issues without charge; without one, the last step fails.",
        CHECKS,
        f"create_project -force weft_u50 ./weft_u50 -part {PART}",
        f"add_files [list {CARD_MODULE}.v {TOP}.v]",
        "add_files -fileset constrs_1 [list pins.xdc crossings.xdc]",
        "set_property used_in_synthesis false [get_files crossings.xdc]",
        "set_property processing_order LATE [get_files crossings.xdc]",
        f"set_property top {TOP} [current_fileset]", "",
        *blocks,
        "generate_target all [get_ips]",
        "launch_runs synth_1 -jobs 4", "wait_on_run synth_1",
        'if {[get_property PROGRESS [get_runs synth_1]] ne "100%"} { error "no netlist: see weft_u50/weft_u50.runs" }',
        "file mkdir reports",
        "open_run synth_1", "report_utilization -hierarchical -hierarchical_depth 3 -file reports/synthesis.txt",
        "close_design",
        "launch_runs impl_1 -to_step route_design -jobs 4", "wait_on_run impl_1",
        'if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} { error "not routed: see weft_u50/weft_u50.runs" }',
        "open_run impl_1",
        "report_timing_summary -max_paths 20 -file reports/timing.txt",
        "report_utilization -hierarchical -hierarchical_depth 3 -file reports/utilization.txt",
        "report_cdc -details -file reports/cdc.txt", "report_bus_skew -file reports/bus_skew.txt",
        "report_drc -file reports/drc.txt", "report_methodology -file reports/methodology.txt",
        "close_design",
        "launch_runs impl_1 -to_step write_bitstream -jobs 4", "wait_on_run impl_1",
        'if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} { error "no bitstream: reports and weft_u50.runs" }',
        'puts "bitstream: [glob weft_u50/weft_u50.runs/impl_1/*.bit]"', ""])


def files(params, *, debug=False):
    """Return ``{name: text}`` of all files but the card itself."""
    top = without_enums(verilog_text(rtlil_text(U50(debug=debug), TOP)))
    return {f"{TOP}.v": top, "pins.xdc": pins_xdc(), "crossings.xdc": crossings_xdc(CROSSINGS),
            "build.tcl": script(params, debug=debug), "program.tcl": PROGRAM}
