"""Picture of the README, goodput against loss, and the measured points that it shows."""

import csv
import hashlib

from weft.tb.app.report.drawing import picture
from weft.tb.app.sweep import plan
from weft.tb.app.sweep.plans import PLANS
from weft.tb.verify.document.parts import ROOT
from weft.tb.verify.document.tables import GOODPUT as DATA

PLAN = "goodput"
TABLE = "sim_build/reports/goodput.parquet"     # output of `weft sweep --plan goodput --output` this file
PICTURE = "docs/goodput.svg"
SCHEMES = {"adamap": ("Weft", "C0", "o"), "irn-bdp": ("IRN, window of one bandwidth-delay product", "C1", "^"),
           "irn-512": ("IRN, window of 512 packets", "C2", "v"), "go-back-n": ("go-back-N", "C3", "s")}


def settings():
    """Return the settings that all points of the plan share."""
    points = plan.read(PLANS[PLAN], []).points
    return {name: getattr(points[0], name) for name in ("rate_gbps", "rtt_ms", "pmtu", "qps", "warmup_rtts",
                                                        "measured_rtts", "seed")}


def points(root=ROOT):
    """Return ``{(scheme, loss): goodput}`` of the measured points."""
    return {(row["scheme"], float(row["loss"])): float(row["goodput"])
            for row in csv.DictReader((root / DATA).read_text(encoding="utf-8").splitlines())}


def take(rows, root=ROOT):
    """Write the points of :data:`SCHEMES` among the rows of a sweep to :data:`DATA`."""
    kept = {(row["scheme"], row["loss"]): row["goodput"] for row in rows if row["loss"]}
    with (root / DATA).open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("scheme", "loss", "goodput"))
        out.writerows((scheme, f"{loss:g}", f"{goodput:.6g}") for scheme in SCHEMES
                      for (found, loss), goodput in sorted(kept.items()) if found == scheme)


def digest(root=ROOT):
    """Return the hash of points, settings and schemes that the picture carries."""
    return hashlib.sha256((root / DATA).read_bytes() + repr((settings(), SCHEMES)).encode()).hexdigest()


def draw(root=ROOT):
    """Draw the picture, unless it shows these points already."""
    target, shown, fixed = root / PICTURE, points(root), settings()
    if target.exists() and digest(root) in target.read_text(encoding="utf-8"):
        return

    def inside(axes):
        for scheme, (label, color, marker) in SCHEMES.items():
            losses = sorted(loss for found, loss in shown if found == scheme)
            axes.plot(losses, [shown[scheme, loss] for loss in losses], color=color, marker=marker, markersize=5,
                      linewidth=3 if scheme == "adamap" else 1.5, zorder=3 if scheme == "adamap" else 2, label=label)
        axes.set_xscale("log")
        axes.set_ylim(0, 1.05)
        axes.set_title(f"{fixed['rate_gbps']:g} Gb/s, round trip {fixed['rtt_ms']:g} ms, {fixed['pmtu']}-byte packets, "
                       f"{fixed['qps']} QP, random loss, packet-level model", fontsize=10)

    svg = picture(inside, xlabel="packet loss", ylabel="goodput, share of the payload rate", legend="", log="")
    target.write_text(svg.replace("<svg", f"<svg width=\"720\" data-points=\"{digest(root)}\"", 1), encoding="utf-8")
