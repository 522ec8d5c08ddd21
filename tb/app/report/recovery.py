"""Recovery packet by packet: sent and lost packets, and the state of receiver and sender over time."""

from matplotlib.axes import Axes

from weft.model.wan import engine
from weft.model.wan.experiment import Experiment
from weft.model.wan.path.line import AGAIN
from weft.model.wan.simulation_state import make
from weft.tb.app.report.drawing import picture

PATH = Experiment(rate_gbps=10, rtt_ms=0.2, pmtu=1024, loss=0.01, outage_ms=0.05, outage_at_rtts=1.5,
                  window_bits=64, transfer_mib=0.8, message_kib=64, marker=True, seed=4)
COMMAND = "weft report"


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


def draw(x: Experiment = PATH) -> str:
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
