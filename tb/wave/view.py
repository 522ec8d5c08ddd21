"""A GTKWave save file for the waves of two cards, and the viewer.

The save file opens on what happens at the first lost packet; states and codes are shown by name.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter

from weft.hdl import wire
from weft.tb.wave.layout import CARD, OVERVIEW
from weft.tb.wave.names import Design
from weft.tb.wave.save import SaveFile
from weft.tb.world.pcap import read_pcap
from weft.tb.world.two_cards import SIDES, TOP

OPCODE_AT = wire.ETH.size_bytes + wire.IPV4.size_bytes + wire.UDP.size_bytes
ORIGINALS = (wire.Opcode.WRITE_ONLY, wire.Opcode.WRITE_ONLY_IMM)
RETRANSMISSIONS = (wire.Opcode.RETX_WRITE, wire.Opcode.RETX_WRITE_IMM)


def write(run, captures=None):
    """Write the save file beside the waves of the run folder ``run``.

    Parameters
    ----------
    run : Path
    captures : Path, optional
        Captures of that run: the first lost packet is looked up there.

    Returns
    -------
    tuple of Path
        Waves and save file; None if there are no waves.
    """
    waves = next((path for path in (run / "waves.fst", run / "waves.vcd") if path.exists()), None)
    if waves is None:
        return None
    save = run / "waves.gtkw"
    design = Design((run.parent / f"{TOP}.v").read_text(), TOP)
    simulator = (run.parent / "ready").read_text().partition("\n")[0]
    with open(save, "w", encoding="utf-8", errors="surrogateescape") as file:
        out = SaveFile(file, waves, design=design, names=run / "waves.names", escaped=simulator == "icarus")
        if moments := first_loss(captures) if captures else {}:
            out.moments(moments)
        out.gtkw.trace(f"{TOP}.clk")
        for title, side, lines in OVERVIEW:
            out.group(title, f"card_{side}", lines, ready=False)
        for side in SIDES:
            with out.gtkw.group(f"all of card {side.upper()}", closed=True):
                for title, lines in CARD:
                    out.group(f"{side.upper()} {title}", f"card_{side}", lines, closed=True)
    return waves, save


def first_loss(captures):
    """Moments around the first data packet that did not arrive, in a run's captures: ``{sentence: nanoseconds}``.

    When it was sent, when the next one arrived, and when the first retransmission did; empty if none was lost.
    """
    try:
        sent, arrived = (read_pcap(captures / f"a_to_b.{what}.pcap") for what in ("sent", "arrived"))
    except OSError:
        return {}
    left = Counter(frame for _, frame in arrived)
    moments = {}
    for time, frame in sent:
        if _opcode(frame) not in ORIGINALS:
            continue
        if left[frame]:
            left[frame] -= 1
            if moments:
                moments["next arrives"] = next(at for at, other in arrived if other == frame and at > time)
                break
        elif not moments:
            moments["lost"] = time
    else:
        return {}
    again = [at for at, frame in arrived if _opcode(frame) in RETRANSMISSIONS and at > moments["next arrives"]]
    return moments | ({"retransmission arrives": again[0]} if again else {})


def _opcode(frame):
    return frame[OPCODE_AT] if len(frame) > OPCODE_AT else None


def tell(run, written, view):
    """Say how to open the waves that :func:`write` has ``written`` for the run folder ``run``, or open them."""
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
    """The command that opens the waves."""
    return shlex.join(["gtkwave", str(waves), str(save)])
