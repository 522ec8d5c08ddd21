"""Figures of the report: each has an explanation, a picture or table, and the command that makes it."""

import math
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.axes import Axes

from weft.model.wan import engine
from weft.model.wan.experiment import Experiment
from weft.model.wan.path.line import AGAIN
from weft.model.wan.result import measure
from weft.model.wan.schemes import card_bytes
from weft.model.wan.simulation_state import make
from weft.tb.app.report.drawing import picture
from weft.tb.app.sweep.picture import lines
from weft.tb.app.sweep.subject import Row
from weft.tb.sim.scenario.compare import COMMAND, TIME_MAX

PATHS = {   # name in the table, and the experiment
    "metro: 100 Gb/s, 2 ms, 0.1 % lost": Experiment(rtt_ms=2, loss=1e-3, warmup_rtts=4),
    "country: 100 Gb/s, 10 ms, 0.1 % lost": Experiment(rtt_ms=10, loss=1e-3, warmup_rtts=4, measured_rtts=5),
    "continent: 100 Gb/s, 30 ms, 1 % lost": Experiment(rtt_ms=30, loss=1e-2, warmup_rtts=4, measured_rtts=2),
    "continent, bursts of 64, 1 % lost": Experiment(rtt_ms=30, burst=64, burst_loss=1e-2, warmup_rtts=4,
                                                    measured_rtts=2),
    "1000 QPs: 100 Gb/s, 30 ms, 1 % lost": Experiment(rtt_ms=30, qps=1000, loss=1e-2, warmup_rtts=4, measured_rtts=2),
}
STALLED_MAX = 1e-3
DEPTHS = (1, 2, 4, 8, 16)
PATH = Experiment(rate_gbps=10, rtt_ms=0.2, pmtu=1024, loss=0.01, outage_ms=0.05, outage_at_rtts=1.5,
                  window_bits=64, transfer_mib=0.8, message_kib=64, marker=True, seed=4)
CARD_SCHEMES = "adamap", "irn-128", "irn-512", "irn-bdp", "melo", "dcp", "go-back-n"
CARD_QPS = 1, 10, 100, 1000, 10_000
NOT_ZERO = 1e-6     # stands for 0 on a logarithmic axis
CONDITIONS = {"rate_gbps": "{:g} Gb/s", "rtt_ms": "RTT {:g} ms", "pmtu": "PMTU {}", "qps": "QPs {}"}


def stalled(row: dict[str, Any]) -> float:
    """Return the share of retransmissions that waited for their node."""
    return row["stalls"] / max(1, row["matches"])


def chosen_sizes(paths: dict[str, Experiment] | None = None) -> list[tuple[str, int, int, float, int]]:
    """Return ``(path, peak of blocks in use, recommended blocks, share that waited, n)`` of each path, as measured.

    The recommended blocks are twice the peak, rounded up to a power of two, since losses vary. n is the smallest one
    with at most one stall per thousand retransmissions, or the largest of :data:`DEPTHS`.
    """
    rows = []
    for name, x in (PATHS if paths is None else paths).items():
        for depth in DEPTHS:
            found = measure(x.with_(depth=depth, watermark=depth))
            part = stalled(vars(found))
            if part <= STALLED_MAX:
                break
        used = max(found.blocks_peak, x.qps)
        rows.append((name, used, 1 << math.ceil(math.log2(2 * used)), part, depth))
    return rows


def trace(x: Experiment = PATH) -> tuple[list[tuple[float, int, bool, bool]], list[tuple[float, int, int]]]:
    """Return ``(packets, known)``.

    ``packets``: time in µs, PSN, whether it is a retransmission, whether it is lost. ``known``, for each slot: time in
    µs, PSN before which the receiver has everything, PSN before which the sender knows this.
    """
    w, packets, known = make(x), [], []
    while not w.s["done"]:
        slot = int(w.s["now"])
        before = int(w.s["originals"] + w.s["retransmissions"])
        engine.run(w, slot + 1)
        at = slot * x.slot_ns / 1e3
        if w.s["originals"] + w.s["retransmissions"] > before:
            packet = w.flight[slot & int(w.s["flight_mask"])]
            packets.append((at, int(packet["psn"]), packet["kind"] == AGAIN, bool(packet["lost"])))
        known.append((at, int(w.qp["cum"][0]), int(w.qp["una"][0])))
    return packets, known


def recovery_picture(x: Experiment = PATH) -> str:
    """Return the SVG of the trace."""
    packets, known = trace(x)

    def inside(axes: Axes) -> None:
        kinds = (("sent", False, False, ".", "tab:blue", 3), ("retransmitted", True, False, "^", "tab:green", 3),
                 ("lost", False, True, "x", "tab:red", 4), ("retransmitted and lost", True, True, "X", "black", 7))
        for name, again, lost, marker, colour, size in kinds:
            found = [(at, psn) for at, psn, *kind in packets if kind == [again, lost]]
            if found:
                axes.plot(*zip(*found, strict=True), marker, color=colour, markersize=size, label=name)
        times, cum, una = zip(*known, strict=True)
        axes.plot(times, cum, color="tab:orange", label="received without gaps (receiver)")
        axes.plot(times, una, color="tab:purple", linestyle="--", label="acknowledged (sender)")

    return picture(inside, xlabel="time, µs", ylabel="PSN", legend="")


@dataclass(frozen=True)
class Figure:
    """Part of the page; ``body`` is SVG or a table."""

    name: str
    title: str
    text: str
    body: str
    command: str


@dataclass(frozen=True)
class Compared:
    """Figures of a :class:`~weft.tb.sim.scenario.compare.Comparison` for the page: cycles on the RTL, errors of the
    model, and the number of different sequences."""

    judges: bool
    cycles: float
    time_error: float
    stall_error: float
    mismatches: int


def conditions(rows: list[Row]) -> str:
    """Return the path and load that all rows share, as the title of a picture."""
    values = {name: {row[name] for row in rows} for name in CONDITIONS}
    return ", ".join(text.format(*values[name]) for name, text in CONDITIONS.items() if len(values[name]) == 1)


def goodput(rows: list[Row], command: str) -> Figure:
    body = picture(lambda axes: lines(axes, rows, "loss", lambda row: row["goodput"], "scheme"),
                   xlabel="loss", ylabel="goodput, share of the payload rate", log="x", legend="",
                   title=conditions(rows))
    return Figure("goodput", "Goodput against loss", "Bytes that are placed for the first time after warm-up, as a "
                  "share of the line's payload rate without loss. All schemes lose the same packets. The upper bound "
                  "is 1 - loss.", body, command)


def completion(rows: list[Row], command: str) -> Figure:
    def inside(axes: Axes) -> None:
        kinds = sorted({(row["loss"], row["scheme"], row["marker"]) for row in rows if row["scheme"] != "oracle"})
        for loss, scheme, marker in kinds:
            times = sorted(row["completion_ms"] for row in rows
                           if (row["loss"], row["scheme"], row["marker"]) == (loss, scheme, marker))
            parts = [(number + 1) / len(times) for number in range(len(times))]
            axes.step([times[0], *times], [0, *parts], where="post", linestyle="-" if marker else ":",
                      color=f"C{sorted({kind[0] for kind in kinds}).index(loss)}",
                      label=f"loss {loss:g}{'' if marker else ', probe after a silence'}")

    return Figure("completion", "Completion of transfers", "Share of the transfers of 128 MiB that are complete "
                  "by a time; each transfer has separate losses. Dotted: the sender detects a loss of its last "
                  "packets by a time-out. Solid: it sends a probe after its last packet.",
                  picture(inside, xlabel="completion, ms", ylabel="share of transfers", legend="",
                          title=conditions(rows)), command)


def memory(rows: list[Row], command: str) -> Figure:
    def inside(axes: Axes) -> None:
        for scheme in CARD_SCHEMES:
            axes.plot(CARD_QPS, [card_bytes(Experiment(scheme=scheme, qps=qps, rtt_ms=rows[0]["rtt_ms"]))
                                 for qps in CARD_QPS], label=f"card, {scheme}")
        lines(axes, [row | {"curve": "host, adamap"} for row in rows], "qps",
              lambda row: row["host_bytes"] or NOT_ZERO, "curve", style="k--")

    return Figure("memory", "Memory of card and host", "Card: memory of the receive window, estimated for the other "
                  "schemes. Host: peak use of the knitting buffer.",
                  picture(inside, xlabel="QPs", ylabel="bytes", log="xy", legend="", title=conditions(rows)), command)


def stalls(rows: list[Row], command: str) -> Figure:
    named = [row | {"read": f"{row['dma_us']:g} µs"} for row in sorted(rows, key=lambda row: row["dma_us"])]
    body = picture(lambda axes: lines(axes, named, "depth", lambda row: max(NOT_ZERO, stalled(row)), "read"),
                   xlabel="nodes of a list cached, n", ylabel="retransmissions that waited", log="y",
                   legend="read of host memory", title=conditions(rows))
    return Figure("stalls", "Waiting for a node", "Share of the retransmissions that arrived before their node was "
                  f"on the card; {NOT_ZERO:g} stands for none.", body, command)


def sequence(command: str) -> Figure:
    return Figure("sequence", "A recovery", "One QP that loses 1 % of its packets, and all packets for a quarter of a "
                  "round trip. A mark is a sent packet. Lost packets are retransmitted a round trip later, before "
                  "new packets.", recovery_picture(), command)


def calibration(compared: list[Compared] | None) -> Figure:
    """Return the figure of a calibration; None: no comparison has run."""
    title, text = "Accuracy of the timing model", (
        "Scenarios on the RTL and in the timing model: relative error of the model's time. The constants of the "
        "model were chosen without the test scenarios; dashed: the permitted error of those. ")
    if compared is None:
        return Figure("calibration", title, f"{text}No comparison has run here yet: run the command.",
                      "<p>No figure yet.</p>", COMMAND)
    judging = [one for one in compared if one.judges]

    def inside(axes: Axes) -> None:
        for label, style, judges in (("calibration", "C7.", False), ("test", "C0o", True)):
            shown = [one for one in compared if one.judges == judges]
            axes.plot([one.cycles for one in shown], [100 * one.time_error for one in shown], style, markersize=4,
                      label=f"{len(shown)} {label} scenarios")
        ends = [edge(one.cycles for one in compared) for edge in (min, max)] if compared else []
        for bar in (-TIME_MAX, TIME_MAX):
            axes.plot(ends, [100 * bar] * len(ends), "C3--", linewidth=1)

    return Figure("calibration", title, f"{text}Largest error of {len(judging)} test scenarios: "
                  f"{max((abs(one.time_error) for one in judging), default=0):.2%} in time, "
                  f"{max((abs(one.stall_error) for one in judging), default=0):.2%} in cycles of waiting. "
                  f"{sum(one.mismatches for one in judging)} of their sequences of reports and matches differ.",
                  picture(inside, xlabel="cycles on the RTL", ylabel="model's time over the RTL's, %", log="x",
                          legend=""), COMMAND)


def chosen(paths: dict[str, Experiment] | None, command: str) -> Figure:
    rows = chosen_sizes(paths)
    head = "".join(f"<th>{escape(word)}</th>" for word in (
        "path", "blocks used", "pool, blocks", "pool, KiB", "n and watermark", "retransmissions that waited"))
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{used:,}</td><td>{blocks:,}</td><td>{blocks // 16:,}</td><td>{depth}</td>"
        f"<td>{part:.2%}</td></tr>" for name, used, blocks, part, depth in rows)
    return Figure("sizes", "Recommended settings", "Blocks: twice the peak use, rounded up to a power of two. n: the "
                  "smallest depth at which at most one retransmission in a thousand waits, or 16. Reads of host "
                  "memory take 1 µs.",
                  f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>',
                  command)
