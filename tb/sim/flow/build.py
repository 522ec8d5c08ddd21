"""Build of a simulator for a component, cached by content.

Builds are stored below :data:`BUILD_ROOT` in ``<name>-<hash>/``; the hash covers the Verilog, the options and the
simulator's version.
"""

import errno
import hashlib
import json
import os
import shutil
import weakref
from pathlib import Path

from weft.tb.sim.flow import kept_text, simulators
from weft.tb.sim.flow.tools import BuildFailed, locked
from weft.tb.sim.flow.verilog_text import top_ports

BUILD_ROOT = Path(os.environ.get("WEFT_BUILD") or "sim_build").absolute()
LOG = "build.log"
LOG_LINES = 40
SPACE_BYTES = 1 << 20

_elaborated = weakref.WeakKeyDictionary()      # {top: Verilog} of a component


def tail(log):
    """Return the last :data:`LOG_LINES` lines of a log; empty if the file is missing."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-LOG_LINES:])


def check_space(folder):
    """Raise ``OSError`` if the disk is full. Called after a failure, to report the full disk as the cause."""
    if shutil.disk_usage(folder).free < SPACE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def elaborate(component, top):
    """Return the Verilog text of a component with a signature; flattened members are the ports of module ``top``.

    The text is cached on disk, see :mod:`~weft.tb.sim.flow.kept_text`, and in this process per component object.
    """
    texts = _elaborated.setdefault(component, {})
    if top not in texts:
        texts[top] = _elaborate(component, top)
    return texts[top]


def _elaborate(component, top):
    from weft.hdl import verilog

    def make():
        return verilog.verilog_text(verilog.rtlil_text(component, top))

    try:
        subject = kept_text.described(component)
    except kept_text.NotPlain:
        return make()
    text = kept_text.kept(BUILD_ROOT, top, subject, kept_text.BENCH, make)
    kept_text.used(component)
    return text


def card_text(params):
    """Return the Verilog of the card, cached under ``sim_build`` by the text of ``hdl/``: elaboration is slow."""
    from weft.hdl import verilog

    return kept_text.kept(BUILD_ROOT, f"card-{params.name}", str(params), kept_text.CARD,
                          lambda: verilog.card_verilog(params))


def build(text, *, top, name, sim, waves=False, optimize="build", everything=False):
    """Build the simulator of Verilog ``text``, or find the cached build; return its folder.

    With ``optimize="build"``, Verilator compiles fast, for blocks; with ``"run"`` it simulates fast, for long runs.
    ``everything`` makes every signal visible to the bench, not only the ports of ``top``: several times slower under
    Verilator.
    """
    tool = simulators.tool(sim)
    wave_kind = tool.wave_kind() if waves else None
    options = [sim, tool.version(), top, wave_kind, optimize, everything, tool.OPTIONS_VERSION]
    digest = hashlib.sha256("\0".join([text, *map(str, options)]).encode()).hexdigest()[:12]
    where = BUILD_ROOT / f"{name}-{digest}"
    with locked(BUILD_ROOT / ".locks" / f"{name}-{digest}"):
        if not (where / "ready").exists():
            if where.exists():  # an interrupted build: make would take its incomplete files for complete ones
                shutil.rmtree(where)
            where.mkdir(parents=True)
            ports = top_ports(text, top)
            (where / f"{top}.v").write_text(text)
            (where / "ports.json").write_text(json.dumps(ports, indent=1))
            log = where / LOG
            try:
                tool.build(where, top=top, ports=ports, wave_kind=wave_kind, optimize=optimize,
                           everything=everything, log=log)
            except BuildFailed as error:
                check_space(where)
                raise AssertionError(
                    f"{name}: {sim} does not build it ({error}); {log} ends with\n{tail(log)}") from None
            (where / "ready").write_text("\n".join(map(str, options)) + "\n")
    return where
