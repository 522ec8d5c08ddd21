"""Wide-area experiments, compared with their targets: rates, goodput, rivals, bursts, outages, many QPs.

Every experiment is an :class:`~weft.model.wan.experiment.Experiment` with the settings that its row states and
otherwise default settings, with seed 1, on one processor. A share is relative to the payload rate after warm-up; ``of
1 - loss`` is relative to the rate that the line delivers. Longer experiments are in
:mod:`~weft.tb.verify.bench.wide_area_long`.
"""

from dataclasses import replace

from weft.model.wan import engine
from weft.model.wan.experiment import Experiment
from weft.model.wan.result import measure as run
from weft.model.wan.simulation_state import make
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress

BASE = Experiment(rate_gbps=100, rtt_ms=30.0, warmup_rtts=4, measured_rtts=6)
LARGE = BASE.with_(pmtu=4096, warmup_rtts=8, measured_rtts=30)
LOSSES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 5e-2)
# Goodput of a window of one round trip, derived analytically; that of go-back-N is a formula below.
IRN = {1e-4: 0.54, 1e-3: 0.50, 1e-2: 0.36}
SPURIOUS_MAX, OF_ORACLE_MIN = 1e-4, 0.99
OUTAGE_MS = 10.0
STEP_US = 20.0        # resolution of the end of a recovery
MIB = 1 << 20


def path(x):
    """Return rate, round trip and packet size as text."""
    return f"{x.qps} QP{'s' * (x.qps > 1)}, {x.rate_gbps:g} Gb/s, {x.rtt_ms:g} ms, {x.pmtu} B"


def goodput():
    """Return the rows of Adamap at every loss, and of the speed of the computation."""
    rows = []
    for x in (LARGE, BASE):
        for loss in LOSSES:
            found = run(x.with_(loss=loss))
            rows.append(Row(f"model_goodput_{x.pmtu}_loss_{loss:g}", "of 1 - loss", found.goodput / (1 - loss),
                            at_least=0.995, conditions=f"Adamap, {path(x)}"))
            if (x, loss) == (BASE, 1e-2):
                speed = Row("model_wan_packets_per_second", "packets/s", found.packets_per_second, at_least=1e6,
                            conditions=f"Adamap, {path(x)}, loss 1e-2, processor time of one core")
    return [speed, *rows]


def rivals():
    """Return the rows that compare the rivals with their known goodput."""
    rows = []
    for loss, of_irn in IRN.items():
        irn = LARGE.with_(scheme="irn-bdp", loss=loss)
        # Enough losses for an average, on a shorter path with equally many losses in a round trip.
        gbn = LARGE.with_(scheme="go-back-n", loss=loss, measured_rtts=max(60, round(400 / (loss * LARGE.bdp))))
        of_gbn = (1 - loss) / (1 - loss + loss * gbn.bdp)
        for name, title, x, share, shown, most in (("irn_bdp", "IRN", irn, of_irn, f"{of_irn}", 0.1),
                                                   ("go_back_n", "go-back-N", gbn, of_gbn, f"{of_gbn:.2g}", 0.25)):
            got, about = run(x).goodput, f"{title}, {path(x)}"
            rows += [Row(f"model_{name}_goodput_loss_{loss:g}", "of payload", got, conditions=about),
                     Row(f"model_{name}_error_loss_{loss:g}", f"of {shown}", abs(got / share - 1), at_most=most,
                         conditions=about)]
    return sorted(rows, key=lambda row: row.conditions)


def bursts():
    """Return the rows of bursts and an outage, compared with the oracle under the same losses."""
    rows = []
    cases = {f"burst_{mean}": {"burst": mean, "burst_loss": 0.01} for mean in (8, 64, 512)}
    cases["outage"] = {"outage_ms": OUTAGE_MS, "outage_at_rtts": 12.0}
    for name, settings in cases.items():
        x = LARGE.with_(measured_rtts=10, **settings)
        ours, best = run(x), run(x.with_(scheme="oracle"))
        rows.append(Row(f"model_{name}_of_oracle", "of the oracle", ours.goodput / best.goodput,
                        at_least=OF_ORACLE_MIN, conditions=f"Adamap, {path(x)}, 1 % lost in bursts, or 10 ms without a "
                                                           "packet"))
        rows.append(Row(f"model_{name}_spurious", "of retransmissions", ours.spurious / max(1, ours.retransmissions),
                        at_most=SPURIOUS_MAX, conditions="the same; sent again for nothing"))
    return sorted(rows, key=lambda row: row.conditions)


def recovery_ms(x):
    """Return the time from the first packet after an outage until the receiver has all earlier packets in order."""
    w, begin = make(x), round(x.outage_at_rtts * x.bdp)
    engine.run(w, begin + x.slots(ms=x.outage_ms))
    sent, since = int(w.qp["next"].max()), int(w.s["now"]) + int(w.s["delay"])
    while w.qp["cum"].min() < sent:
        engine.run(w, int(w.s["now"]) + x.slots(us=STEP_US))
    return (int(w.s["now"]) - since) * x.slot_ns / 1e6


def outage():
    """Return the row of the recovery time after an outage."""
    x = LARGE.with_(outage_ms=OUTAGE_MS)
    took = recovery_ms(x)
    return [Row("model_outage_recovery", "of RTT + outage", took / (x.rtt_ms + x.outage_ms), at_most=1.05,
                conditions=f"Adamap, {path(x)}, 10 ms without a packet; seen by the receiver")]


def many_qps():
    """Return the rows of the memory for 10,000 QPs, each with separate losses."""
    x = BASE.with_(qps=10_000, rtt_ms=100.0, loss=1e-2, warmup_rtts=3, measured_rtts=1)
    rows = []
    for name, settings, most in (("", {}, MIB), ("_outage", {"outage_ms": OUTAGE_MS, "outage_at_rtts": 2.0}, 2 * MIB)):
        found = run(x.with_(**settings))
        about = f"Adamap, {path(x)}, loss 1e-2{', a 10 ms outage' * bool(name)}, pool of {x.blocks} blocks"
        made = [
            Row(f"model_10k_qps{name}_host_bytes", "B", found.host_bytes, at_most=most),
            Row(f"model_10k_qps{name}_card_bytes", "B", found.card_bytes),
            Row(f"model_10k_qps{name}_leaked", "blocks", found.leaked_blocks, at_most=0),
            Row(f"model_10k_qps{name}_waiting", "nodes", found.waiting_peak),
            Row(f"model_10k_qps{name}_goodput", "of 1 - loss", found.goodput / (1 - x.loss))]
        rows += [replace(row, conditions=about) for row in made]
    return rows


PARTS = (goodput, rivals, bursts, outage, many_qps)


def measure(progress):
    rows = []
    for number, part in enumerate(PARTS):
        report_progress(progress, part.__name__.replace("_", " "), number, len(PARTS))
        rows += part()
    return rows
