"""Figures of the card on an FPGA: estimated size and longest paths, and frequencies after place and route."""

from rich.console import Console

from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.synth import place, synth
from weft.tb.sim.synth.path import CONSTANTS

PRESETS = ("basic", "full")
PLACED = "basic"
CONDITIONS = f"Yosys for UltraScale+, block by block, nothing placed; {CONSTANTS}"
ADAMAP_LUT = 61_154     # of the Adamap subsystem in `basic`, by the same estimate, before its long chains became trees
# Half of the memories of an Alveo U50: 1,344 block RAMs of 36 kbit, 640 UltraRAMs (AMD DS965).
BARS = {"synth_worst_path_ns": 3.4, "synth_bram36_full": 1344 / 2, "synth_uram_full": 640 / 2,
        "synth_lut_adamap_basic": ADAMAP_LUT / 2}
SINCE = {"synth_lut_adamap_basic": f"; half of the {ADAMAP_LUT:,} that it took before its chains became trees"}


def rows(found):
    """Return the rows for which a result of :func:`weft.tb.sim.synth.synth.run` is complete."""
    values = []
    if found.keys() >= set(PRESETS):
        values.append(("synth_worst_path_ns", "ns", max(
            paths[0]["ns"] for name in PRESETS for paths in found[name].paths.values() if paths)))
    if "full" in found:
        card = found["full"].blocks[""]
        values += [("synth_bram36_full", "block RAMs", card["bram36"] + card["bram18"] / 2),
                   ("synth_uram_full", "UltraRAMs", card["uram"])]
    if "basic" in found and "adamap" in found["basic"].blocks:
        values.append(("synth_lut_adamap_basic", "LUT", found["basic"].blocks["adamap"]["lut"]))
    return [Row(*each, at_most=BARS.get(each[0]), conditions=CONDITIONS + SINCE.get(each[0], "")) for each in values]


def placed_rows(placed):
    """Return the rows for a result of :func:`weft.tb.sim.synth.synth.placed`."""
    ratios = {block: each["ratio"] for block, each in placed.items() if block != place.REFERENCE}
    if not ratios:
        return []
    worst = min(ratios, key=ratios.get)
    blocks = "; ".join(f"{block} {ratio:.2f}" for block, ratio in sorted(ratios.items(), key=lambda item: item[1]))
    return [Row("pnr_ratio_to_translate_min", "of its frequency", ratios[worst], at_least=place.BAR,
                conditions=f"{place.CONDITIONS}; preset {PLACED}, Translate {placed[place.REFERENCE]['mhz']:.0f} MHz; "
                           f"{blocks}")]


def measure(progress):
    """Measure all figures for both presets: hours of CPU time without cached results, minutes after a changed block."""
    quiet = Console(quiet=True)
    report_progress(progress, "synthesis", 0, 2)
    found = synth.run(PRESETS, console=quiet)
    report_progress(progress, "place and route", 1, 2)
    return rows(found) + placed_rows(synth.placed(PLACED, found[PLACED], console=quiet))
