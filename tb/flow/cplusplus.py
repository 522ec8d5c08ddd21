"""Compiles what Verilator wrote, in little more than the time that the code itself takes.

- What runs often is compiled as one file and what runs once (``OPT_SLOW``) as another: the headers of the standard
  library take longer than a block.
- The run-time library and its precompiled headers are the same for all models with the same switches: they are kept
  beside the builds. A precompiled header that the compiler refuses is read as text.
"""

import hashlib
import re
import tempfile
from importlib.metadata import version
from pathlib import Path

from weft.tb.flow.tools import build_commands, locked

RUNTIME, HEADER = "runtime", "runtime.h"
KEPT, PART = "verilated-", "part-of-verilated-"
INCLUDED = '#include "verilated.h"\n#include "verilated_dpi.h"\n#include "verilated_vpi.h"\n'
SPEEDS = ("fast", "slow")
LARGE_BYTES = 200_000

# With -O2, a card takes twice as long to compile and as long to simulate.
OPTIMIZE = ["OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2"]


def compile_model(where, *, main, apart, log, environment):
    """Compile and link the model in folder ``where``, whose makefile is ``Vtop.mk``, with the file ``main``.

    ``apart``: large files are compiled alone, for the processors to share.
    """
    classes = (where / "Vtop_classes.mk").read_text()
    library = [f"{name}.o" for name in _names(classes, "GLOBAL_FAST", "GLOBAL_SLOW")]
    headers = [f"{RUNTIME}/{HEADER}.{speed}.gch" for speed in SPEEDS]
    make = ["make", "-j2", "-f", "Vtop.mk", "CURDIR=.", f"VK_PCH_H={RUNTIME}/{HEADER}",
            *(f"VK_PCH_I_{speed.upper()}=-include {RUNTIME}/{HEADER}.{speed}" for speed in SPEEDS),
            *OPTIMIZE]
    kept = _runtime(where, classes, make, [*headers, *library], log, environment)
    large = _group(where, classes, main, apart)
    objects = [f"{RUNTIME}/{name}" for name in library]
    (where / RUNTIME).symlink_to(kept)
    build_commands([[*make, *(option for name in [*headers, *objects] for option in ("-o", name)),
                     "VM_PARALLEL_BUILDS=1", f"VM_CLASSES_FAST={' '.join(['fast', *large])}", "VM_CLASSES_SLOW=slow",
                     "VM_SUPPORT_FAST=", "VM_SUPPORT_SLOW=", f"VK_GLOBAL_OBJS={' '.join(objects)}"]],
                   where, log, environment)
    (where / RUNTIME).unlink()


def _names(classes, *lists):
    """Names of files in some lists of ``Vtop_classes.mk``."""
    return [name for kind in lists
            for name in re.search(rf"^VM_{kind} \+= \\\n((?:  .*\\\n)*)", classes, re.MULTILINE)[1].split()
            if name != "\\"]


def _group(where, classes, main, apart):
    """Write ``fast.cpp`` and ``slow.cpp``, which include the others, large ones not if they are to stay ``apart``.

    Returns the names of those.
    """
    groups = {speed: [f"{name}.cpp" for name in _names(classes, f"CLASSES_{speed.upper()}", f"SUPPORT_{speed.upper()}")]
              for speed in SPEEDS}
    large = [name for name in groups["fast"] if apart and (where / name).stat().st_size > LARGE_BYTES]
    groups["fast"] = [main, *(name for name in groups["fast"] if name not in large)]
    for speed, names in groups.items():
        (where / f"{speed}.cpp").write_text("".join(f'#include "{name}"\n' for name in names))
    return [name.removesuffix(".cpp") for name in large]


def _runtime(where, classes, command, targets, log, environment):
    """Folder of the run-time library for such a model: kept, or made by ``command`` in ``where``."""
    switches = re.findall(r"^VM_(?!PARALLEL)\w+ = .*$", classes, re.MULTILINE)
    digest = hashlib.sha256("\n".join([version("verilator"), *switches, INCLUDED, *command, *targets]).encode())
    kept = where.parent / f"{KEPT}{digest.hexdigest()[:12]}"
    with locked(where.parent / ".locks" / kept.name):
        if not kept.exists():
            part = Path(tempfile.mkdtemp(dir=kept.parent, prefix=PART))
            for speed in SPEEDS:
                (part / f"{HEADER}.{speed}").write_text(INCLUDED)
            (part / HEADER).write_text(INCLUDED)
            (where / RUNTIME).symlink_to(part)
            build_commands([[*command, *targets]], where, log, environment)
            for name in targets:
                if not name.startswith(RUNTIME):
                    (where / name).rename(part / name)
            (where / RUNTIME).unlink()
            part.rename(kept)
    return kept
