"""A GTKWave save file for the waves of two cards, and the viewer."""

import json
import os
import shutil
import subprocess
import sys

from vcd.gtkw import GTKWSave

from .two_cards import SIDES, TOP

GROUPS = (("link", ("m_axis_tx", "s_axis_rx")), ("PCIe", ("m_axis_rq", "s_axis_rc", "s_axis_cq", "m_axis_cc")))


def write_save(waves, ports, save):
    """Write ``save``: clock, then the streams at each card's edge, a group for each.

    Parameters
    ----------
    waves : Path
        FST or VCD file.
    ports : dict
        Ports of the top module: ``{name: (direction, width)}``.
    save : Path
    """
    with open(save, "w") as file:
        gtkw = GTKWSave(file)
        gtkw.dumpfile(str(waves))
        gtkw.treeopen(f"{TOP}.")
        gtkw.trace(f"{TOP}.clk")
        gtkw.trace(f"{TOP}.rst")
        for side in SIDES:
            with gtkw.group(f"card {side}"):
                for title, streams in GROUPS:
                    for stream in streams:
                        with gtkw.group(f"{title} {stream}", closed=title != "link"):
                            for name, (_, width) in ports.items():
                                if name.startswith(f"{side}_{stream}__"):
                                    span = f"[{width - 1}:0]" if width > 1 else ""
                                    gtkw.trace(f"{TOP}.{name}{span}", datafmt="hex")


def show(run):
    """Write the save file of the run folder ``run`` and open GTKWave, or say how."""
    waves = next(iter(sorted(run.glob("waves.*st")) + sorted(run.glob("waves.vcd"))), None)
    if waves is None:
        print(f"weft: there are no waves in {run}", file=sys.stderr)
        return
    save = run / "waves.gtkw"
    write_save(waves, json.loads((run.parent / "ports.json").read_text()), save)
    viewer = shutil.which("gtkwave")
    if viewer and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([viewer, str(waves), str(save)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    else:
        why = "there is no display" if viewer else "GTKWave is not installed (on Debian: apt-get install gtkwave)"
        print(f"{why}; elsewhere: gtkwave {waves} {save}")
