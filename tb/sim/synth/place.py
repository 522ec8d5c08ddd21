"""Second estimate of paths: blocks of the card placed and routed by nextpnr on another FPGA.

That FPGA is several times slower than an UltraScale+. The figure is therefore the ratio of a block's frequency to that
of ``Translate``, the block with the most slack, placed by the same tools. All ports of a block get registers that are
connected to nothing else, so that only paths inside the block are timed. The block is flattened and optimized as a
whole. The random start of placement changes the frequency of a block by a tenth, and copying cells with many loads
helps some blocks and hinders others. Therefore the best of several tries counts; tries end with the first one that is
fast enough. Results are cached by content.
"""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor

from weft.tb.sim.flow.build import tail
from weft.tb.sim.flow.simulate import BUILD_ROOT, locked
from weft.tb.sim.synth import mapped, nexus, yosys

REFERENCE = "tables.translate_receive"
LUTS = 10_000                       # of an UltraScale+; half of the device: with more, wires make detours of 7 ns
ULTRA_RAM = 8                       # block RAMs with the capacity of one UltraRAM
BAR = 0.75                          # required ratio of a block's frequency to the reference's
SEEDS = (1, 2, 3)
LOADS = (32, 16)                    # maximum loads of a cell; cells with more loads are copied
TRIES = tuple((seed, loads) for seed in SEEDS for loads in LOADS)
CONDITIONS = (f"nextpnr on a {nexus.DEVICE}, ports registered, best of {len(TRIES)} tries or the first that reaches "
              f"the bar: {len(SEEDS)} seeds, cells of more than {' or '.join(map(str, LOADS))} loads copied; blocks "
              "that are too large by their sub-blocks")


def chosen(blocks, subsystems):
    """Return the blocks to place: ``subsystems``, or for one that is too large, its sub-blocks that are not.

    ``blocks`` is ``{block: {kind: cells}}`` of :func:`weft.tb.sim.synth.synth.blocks_of`.
    """
    def parts(block):
        counts = blocks[block]
        memories = counts["bram36"] + counts["bram18"] / 2 + counts["uram"] * ULTRA_RAM
        if counts["lut"] <= LUTS and memories <= nexus.BLOCK_RAMS:
            return [block] if counts["lut"] else []
        below = [other for other in blocks if other.rpartition(".")[0] == block]
        return [part for other in below for part in parts(other)]

    return [part for subsystem in subsystems for part in parts(subsystem)]


def place(modules, tops, finished=lambda top, placed: None):
    """Place each module of ``tops`` with everything below it, two at a time; the first one is the reference.

    ``modules`` is ``{module: Verilog}`` of :func:`weft.tb.sim.synth.mapped.modules_of`.

    Returns
    -------
    dict
        ``{top: {"mhz", "luts", "seconds", "routing"}}``: ``luts`` are four-input LUTs, ``seconds`` wall-clock time, and
        ``routing`` the share of routing in the longest path.

    Raises
    ------
    SynthesisFailed
    """
    def work(top, goal_mhz=float("inf")):
        inside = {name: text for name, text in modules.items() if f"{name}.".startswith(f"{top}.")}
        text = "\n".join([*(inside[name] for name in sorted(inside)), nexus.harness(top, modules[top])])
        placed = _place(top, text, goal_mhz)
        finished(top, placed)
        return placed

    first, *others = tops
    placed = {first: work(first)}
    with ThreadPoolExecutor(mapped.WORKERS) as pool:
        goal_mhz = BAR * placed[first]["mhz"]
        return placed | dict(zip(others, pool.map(lambda top: work(top, goal_mhz), others), strict=True))


def _place(top, text, goal_mhz):
    """Return the best of the tries until one reaches ``goal_mhz``."""
    text = text.replace(mapped.ULTRA, 'ram_style = "block"')     # there is no UltraRAM
    made = "\0".join((text, yosys.version(), nexus.nextpnr_version(), nexus.DEVICE, str(nexus.GOAL_MHZ),
                      nexus.MAPPING, str(nexus.ROUTER)))
    where = BUILD_ROOT / f"place/{hashlib.sha256(made.encode()).hexdigest()[:16]}"
    results, cells = [], where / nexus.CELLS
    with locked(BUILD_ROOT / ".locks" / f"place-{where.name}"):
        where.mkdir(parents=True, exist_ok=True)
        for seed, loads in TRIES:
            kept = where / f"placed-{seed}-{loads}.json"
            if not kept.exists():
                start = time.monotonic()
                if not cells.exists():
                    nexus.map_block(top, text, where)
                found = nexus.run(where, seed, loads)
                if found is None:       # not cached and so tried again in a later run: it may have been interrupted
                    continue
                kept.write_text(json.dumps(found | {"seconds": round(time.monotonic() - start)}))
            results.append(json.loads(kept.read_text()))
            if results[-1]["mhz"] >= goal_mhz:
                break
        cells.unlink(missing_ok=True)
    if not results:
        log = nexus.log_of(where, *TRIES[-1])
        raise yosys.SynthesisFailed(f"{top} could not be placed and routed, see {log}:\n{tail(log)}")
    best = max(results, key=lambda result: result["mhz"])
    return best | {"seconds": sum(result["seconds"] for result in results)}
