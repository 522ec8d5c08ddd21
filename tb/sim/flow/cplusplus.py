"""Compilation of the C++ that Verilator generates, with little overhead on top of the model code.

- A model is one translation unit, because the headers of the standard library take longer to compile than a block.
  Code that runs once is not optimized.
- The run-time library is the same for all models. The wave writers and the precompiled header are the same for all
  models with equal compiler switches. All three are cached beside the builds. If the compiler rejects the precompiled
  header, it reads the header as text.
"""

import hashlib
import re
import tempfile
from importlib.metadata import version
from pathlib import Path

from weft.tb.sim.flow.tools import build_commands, locked

LIBRARY, WRITERS, HEADERS, HEADER = "library", "writers", "headers", "runtime.h"     # folders in a build, and a file
KEPT, PART = "verilated-", "part-of-verilated-"
INCLUDED = ("verilated.h", "verilated_dpi.h", "verilated_vpi.h")
RUNS_ONCE = '#pragma GCC optimize("O0")\n'
LARGE_BYTES = 200_000
# With -O2, a card takes twice as long to compile and the same time to simulate. In functions with thousands of stores,
# the compiler without limits spends a third of its time on alias analysis.
LIMITS = "--param=sccvn-max-alias-queries-per-access=20 --param=dse-max-alias-queries-per-store=8"
OPTIMIZE = [f"OPT_FAST=-O1 {LIMITS}", "OPT_GLOBAL=-O2"]
# Only the wave writers, which are compiled separately, use these macros.
NO_WAVES = ["VM_TRACE=0", "VM_TRACE_FST=0", "VM_TRACE_VCD=0"]


def compile_model(where, *, main, apart, log, environment):
    """Compile and link the model in folder ``where``, whose makefile is ``Vtop.mk``, with the file ``main``.

    With ``apart``, large files and the code that runs once are separate translation units, compiled in parallel.
    """
    classes = (where / "Vtop_classes.mk").read_text()
    library = _names(classes, "GLOBAL_FAST", "GLOBAL_SLOW")
    writers = [name for name in library if name.endswith("_c")]
    make = ["make", "-j2", "-f", "Vtop.mk", "CURDIR=.", f"VK_PCH_H={HEADERS}/{HEADER}",
            f"VK_PCH_I_FAST=-include {HEADERS}/{HEADER}.fast", *OPTIMIZE]
    objects = [f"{LIBRARY}/library.o", *(f"{WRITERS}/{name}.o" for name in writers)]
    header = _includes(INCLUDED)
    _keep(where, LIBRARY, {"library.cpp": _includes(f"{name}.cpp" for name in library if name not in writers)},
          [*make, *NO_WAVES, f"VK_GLOBAL_OBJS={objects[0]}"], ["library.o"], log, environment)
    traced = [*make, *(switch.replace(" ", "") for switch in re.findall(r"^VM_TRACE\w* = .$", classes, re.MULTILINE)),
              f"VK_GLOBAL_OBJS={' '.join(objects[1:])}"]
    _keep(where, WRITERS, {f"{name}.cpp": f'#include <{name}.cpp>\n' for name in writers}, traced,
          [f"{name}.o" for name in writers], log, environment)
    _keep(where, HEADERS, {HEADER: header, f"{HEADER}.fast": header}, traced, [f"{HEADER}.fast.gch"], log, environment)
    made = [f"{HEADERS}/{HEADER}.fast.gch", *objects]
    build_commands([[*make, *(option for name in made for option in ("-o", name)), "VM_PARALLEL_BUILDS=1",
                     f"VM_CLASSES_FAST={' '.join(_files(where, classes, main, apart))}", "VM_CLASSES_SLOW=",
                     "VM_SUPPORT_FAST=", "VM_SUPPORT_SLOW=", f"VK_GLOBAL_OBJS={' '.join(objects)}"]],
                   where, log, environment)
    for folder in (LIBRARY, WRITERS, HEADERS):
        (where / folder).unlink(missing_ok=True)


def _includes(names):
    return "".join(f'#include "{name}"\n' for name in names)


def _names(classes, *lists):
    """Return the file names in the given lists of ``Vtop_classes.mk``."""
    return [name for kind in lists
            for name in re.search(rf"^VM_{kind} \+= \\\n((?:  .*\\\n)*)", classes, re.MULTILINE)[1].split()
            if name != "\\"]


def _files(where, classes, main, apart):
    """Write the files that include those of the model; return the names of all files to compile."""
    fast, slow = ([f"{name}.cpp" for name in _names(classes, f"CLASSES_{speed}", f"SUPPORT_{speed}")]
                  for speed in ("FAST", "SLOW"))
    large = [name for name in fast if apart and (where / name).stat().st_size > LARGE_BYTES]
    text = _includes([main, *(name for name in fast if name not in large)])
    rest = RUNS_ONCE + _includes(slow)
    if not apart:
        text += rest
    (where / "fast.cpp").write_text(text)
    if apart:
        (where / "slow.cpp").write_text(rest)
    return ["fast", *["slow"] * apart, *(name.removesuffix(".cpp") for name in large)]


def _keep(where, name, sources, command, targets, log, environment):
    """Link ``where / name`` to a folder with the sources ``{file: text}`` and the results of ``command``.

    The folder is cached, and built if it is missing. Without sources, no link is made.
    """
    if not sources:
        return
    digest = hashlib.sha256("\0".join([version("verilator"), repr(sources), *command, *targets]).encode())
    kept = where.parent / f"{KEPT}{name}-{digest.hexdigest()[:12]}"
    with locked(where.parent / ".locks" / kept.name):
        if not kept.exists():
            part = Path(tempfile.mkdtemp(dir=kept.parent, prefix=PART))
            for file, text in sources.items():
                (part / file).write_text(text)
            (where / name).symlink_to(part)
            build_commands([[*command, *(f"{name}/{target}" for target in targets)]], where, log, environment)
            (where / name).unlink()
            part.rename(kept)
    (where / name).symlink_to(kept)
