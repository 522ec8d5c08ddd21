"""GTKWave save file for the waves of two cards, and start of the viewer.

The save file opens at the first lost packet; states and codes are shown by name.
"""

import os
import shlex
import shutil
import subprocess
import sys

from weft.tb.sim.pair.two_cards import SIDES, TOP, clock_ports, inside
from weft.tb.sim.wave.layout import CARD, OVERVIEW
from weft.tb.sim.wave.moments import first_loss, shown
from weft.tb.sim.wave.names import Design
from weft.tb.sim.wave.save import SaveFile


def write(run, captures=None):
    """Write the save file beside the waves of the run folder ``run``.

    The first lost packet is found in the folder ``captures`` of that run. Return the paths of waves and save file; None
    if there are no waves.
    """
    waves = next((path for path in (run / "waves.fst", run / "waves.vcd") if path.exists()), None)
    if waves is None:
        return None
    save = run / "waves.gtkw"
    text = (run.parent / f"{TOP}.v").read_text()
    design = Design(text, TOP)
    simulator = (run.parent / "ready").read_text().partition("\n")[0]
    with open(save, "w", encoding="utf-8", errors="surrogateescape") as file:
        out = SaveFile(file, waves, design=design, names=run / "waves.names", escaped=simulator == "icarus")
        if moments := first_loss(captures) if captures else []:
            out.moments(shown(moments, waves, f"{TOP}.{inside('b')}"))
        for clock in clock_ports(text):
            out.gtkw.trace(f"{TOP}.{clock}")
        for title, side, lines in OVERVIEW:
            out.group(title, inside(side), lines, ready=False)
        for side in SIDES:
            with out.gtkw.group(f"all of card {side.upper()}", closed=True):
                for title, lines in CARD:
                    out.group(f"{side.upper()} {title}", inside(side), lines, closed=True)
    return waves, save


def print_summary(run, written, view):
    """Print how to open the waves that :func:`write` has ``written`` for the run folder ``run``, or open them."""
    if written is None:
        print(f"weft: there are no waves in {run}", file=sys.stderr)
        return
    viewer = shutil.which("gtkwave")
    if not view:
        print(f"waves: {command(*written)}")
    elif viewer and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([viewer, *map(str, written)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    else:
        why = "there is no display" if viewer else "GTKWave is not installed (Debian: apt-get install gtkwave)"
        print(f"weft: {why}; the command is: {command(*written)}")


def command(waves, save):
    """Return the command that opens the waves."""
    return shlex.join(["gtkwave", str(waves), str(save)])
