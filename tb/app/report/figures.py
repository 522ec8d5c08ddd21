"""Figures of the report: each has an explanation, a picture or table, and the command that makes it."""

from dataclasses import dataclass
from html import escape

from matplotlib.axes import Axes

from weft.model.wan.experiment import Experiment
from weft.model.wan.schemes import card_bytes
from weft.tb.app.report import choose, recovery
from weft.tb.app.report.drawing import picture
from weft.tb.app.sweep.picture import lines
from weft.tb.app.sweep.subject import Row
from weft.tb.sim.scenario.compare import COMMAND, TIME_MAX

CARD_SCHEMES = "adamap", "irn-128", "irn-512", "irn-bdp", "melo", "dcp", "go-back-n"
CARD_QPS = 1, 10, 100, 1000, 10_000
NOT_ZERO = 1e-6     # stands for 0 on a logarithmic axis
CONDITIONS = {"rate_gbps": "{:g} Gb/s", "rtt_ms": "RTT {:g} ms", "pmtu": "PMTU {}", "qps": "QPs {}"}


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
    body = picture(lambda axes: lines(axes, named, "depth", lambda row: max(NOT_ZERO, choose.stalled(row)), "read"),
                   xlabel="nodes of a list cached, n", ylabel="retransmissions that waited", log="y",
                   legend="read of host memory", title=conditions(rows))
    return Figure("stalls", "Waiting for a node", "Share of the retransmissions that arrived before their node was "
                  f"on the card; {NOT_ZERO:g} stands for none.", body, command)


def sequence(command: str) -> Figure:
    return Figure("sequence", "A recovery", "One QP that loses 1 % of its packets, and all packets for a quarter of a "
                  "round trip. A mark is a sent packet. Lost packets are retransmitted a round trip later, before "
                  "new packets.", recovery.draw(), command)


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
    rows = choose.sizes(paths)
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
