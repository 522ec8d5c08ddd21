"""Map a subsystem with and without the boundaries of its blocks, to measure the cost or gain of boundaries.

``python -m weft.tb.sim.synth.flattened adamap.second_level.matcher`` maps the subsystem of preset ``basic`` as:

- ``blocks``: every block separately, as :mod:`weft.tb.sim.synth.mapped` does for ``weft synth``;
- ``folded``: blocks without registers and without sub-blocks are folded into the enclosing block;
- ``flat``: one block;
- ``--form marks.is_open+outcome``: these blocks are folded into the enclosing blocks, the others stay.

Sizes and paths are counted as for ``weft synth``. nextpnr (``weft synth --place``) flattens a block before placement,
so its frequency always is that of ``flat``. Results are cached by content in ``sim_build/flattened``.
"""

import argparse
import hashlib
import json
import re
from collections import Counter

from rich.console import Console
from rich.table import Table

from weft.hdl.verilog import CARD_MODULE
from weft.tb.sim.flow.simulate import BUILD_ROOT
from weft.tb.sim.synth import mapped, synth, yosys
from weft.tb.sim.synth.path import linked, worst_paths

KEPT = BUILD_ROOT / "flattened"
FORMS = ("blocks", "folded", "flat")
_NUMBER = re.compile(r"\$\d+$")     # suffix of a block whose name another signal has


def boundaries(form, top, modules):
    """Return the names of the modules that stay blocks in a form; ``top`` always does."""
    if form == "flat":
        return {top}
    if form == "blocks":
        return set(modules)
    if form == "folded":
        return {name for name, text in modules.items()
                if name == top or "posedge" in text or mapped.below(name, modules)}
    folded = {f"{top}.{block}" for block in form.split("+")}
    apart = {name for name in modules if _NUMBER.sub("", name) not in folded}
    if len(modules) - len(apart) < len(folded):
        raise ValueError(f"not all of {form} are blocks below {top}")
    return apart


def measure(form, top, modules):
    """Map ``top`` in a form; return ``{"blocks", "lut", "ff", "carry", "ns", "levels", "path", "seconds"}``.

    Raises
    ------
    SynthesisFailed
    """
    apart, text = boundaries(form, top, modules), "\n".join(modules[name] for name in sorted(modules))
    flow = f"{mapped.command(text)} -flatten".replace("-top holder", f"-top \\{top}")
    made = "\0".join((text, flow, *sorted(apart), mapped.luts(), yosys.version()))
    where = KEPT / hashlib.sha256(made.encode()).hexdigest()[:16]
    result = where / "result.json"
    if not result.exists():
        keep = "".join(f"setattr -mod -set keep_hierarchy 1 \\{name}; " for name in sorted(apart - {top}))
        found, seconds = mapped.synthesize(top, text, flow, where, keep)
        result.write_text(json.dumps(_figures(found, seconds, top, modules, apart)))
    return json.loads(result.read_text())


def _figures(found, seconds, top, modules, apart):
    records = {name: mapped.record(name, found[name], modules) for name in apart}
    counts = Counter(kind for record in records.values() for kind, _ in record["cells"])
    path = worst_paths(linked(top, lambda module: records[module]), 1)[0]
    return {"blocks": len(apart), **{kind: sum(n for cell, n in counts.items() if synth.KINDS[kind](cell))
                                     for kind in ("lut", "ff", "carry")},
            "ns": path.ns, "levels": path.levels, "path": f"{path.start} to {path.end}",
            "seconds": round(seconds)}


def run(block, preset, forms=FORMS):
    """Print the figures of a subsystem in each form."""
    top, modules = f"{CARD_MODULE}.{block}", mapped.modules_of(synth.verilog(preset))
    modules = {name: text for name, text in modules.items() if f"{name}.".startswith(f"{top}.")}
    table = Table("form", "blocks", "LUT", "flip-flops", "carry", "path, ns", "LUTs on it", "CPU, s", "path", box=None)
    for form in forms:
        each = measure(form, top, modules)
        table.add_row(form, *(f"{each[name]:,}" for name in ("blocks", "lut", "ff", "carry")), f"{each['ns']:.2f}",
                      str(each["levels"]), str(each["seconds"]), each["path"])
    Console().print(table)


def main(arguments=None):
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m weft.tb.sim.synth.flattened",
                                     description=__doc__.partition("\n")[0])
    parser.add_argument("block", help="as in `weft synth`, for example adamap.second_level.matcher")
    parser.add_argument("--preset", default="basic")
    parser.add_argument("--form", action="append",
                        help="blocks, folded, flat (all of them by default), or blocks to fold, joined by +")
    given = parser.parse_args(arguments)
    run(given.block, given.preset, given.form or FORMS)


if __name__ == "__main__":
    main()
