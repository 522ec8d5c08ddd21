"""Wide-area experiments that take minutes: completion times, wraps of PSNs, and the memory model of the card.

- ``completion``: 128 MiB at 400 Gb/s over 25 ms, relative to the time without loss. The reference, ideal recovery by
  loss reports, was computed separately.
- ``wraps``: packets for twenty wraps of the 24-bit PSN, each compared with 64-bit numbers; and the cost of the limit of
  2^23 outstanding PSNs.
- ``card_memory``: the constants of :mod:`weft.model.wan.schemes`, compared with the elaborated subsystem.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean

from weft.model.wan import schemes
from weft.model.wan.experiment import Experiment
from weft.model.wan.result import compile_engine
from weft.model.wan.result import measure as run
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.percentile import percentile
from weft.tb.sim.flow.progress import report_progress

TRANSFERS = 1000
IDEAL = {1e-5: (1.24, 1.90), 1e-4: (1.84, 1.90), 1e-3: (1.92, 2.80), 1e-2: (2.77, 3.70)}   # {loss: (mean, p99.9)}
TRANSFER = Experiment(rate_gbps=400, rtt_ms=25.0, pmtu=4096, transfer_mib=128)
WRAPS = 20
FAST = Experiment(rate_gbps=400, rtt_ms=25.0, pmtu=1024, loss=1e-3, warmup_rtts=5)
FAR = Experiment(rate_gbps=400, rtt_ms=100.0, warmup_rtts=6, measured_rtts=6, loss=1e-3)


def times(x, count, progress=None):
    """Return the sorted completion times of ``count`` transfers in ms, each with a separate seed."""
    compile_engine()
    found = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for number, result in enumerate(pool.map(lambda seed: run(x.with_(seed=seed)), range(1, count + 1))):
            found.append(result.completion_ms)
            if number % 20 == 0:
                report_progress(progress, f"loss {x.loss:g}{', a probe at the end' * x.marker}", number, count)
    return sorted(found)


def completion(progress, count=TRANSFERS):
    """Return the rows; ``marker``: with a probe as soon as there is nothing more to send."""
    alone = run(TRANSFER).completion_ms
    rows = []
    for marker in (True, False):
        name = "model_completion" if marker else "model_completion_silent"
        about = (f"{count} transfers of 128 MiB, 400 Gb/s, 25 ms, 4096 B, "
                 f"{'a probe after the last packet' if marker else 'a probe after the silence the driver waits for'}")
        for loss, (mean, tail) in IDEAL.items():
            found = times(TRANSFER.with_(loss=loss, marker=marker), count if marker else min(count, 200), progress)
            for subject, value, ideal, most in (("mean", fmean(found), mean, 0.05),
                                                ("p999", percentile(found, 0.999), tail, 0.1)):
                if marker or subject == "mean":
                    share = value / alone
                    rows.append(Row(f"{name}_{subject}_loss_{loss:g}", "of lossless", share, conditions=about))
                    rows.append(Row(f"{name}_{subject}_late_loss_{loss:g}", f"over {ideal}", share / ideal - 1,
                                    at_most=most if marker else None, conditions=about))
    return rows


def wraps(progress, count=WRAPS):
    report_progress(progress, f"{count} wraps", 0, 4)
    x = FAST.with_(measured_rtts=count * (1 << 24) / FAST.bdp)
    found = run(x)
    about = "Adamap, 1 QP, 400 Gb/s, 25 ms, 1024 B, loss 1e-3"
    rows = [Row("model_wraps", "wraps", found.wraps, at_least=count, conditions=about),
            Row("model_wraps_goodput", "of 1 - loss", found.goodput / (1 - x.loss), at_least=0.99, conditions=about),
            Row("model_wraps_aliases", "PSNs", found.aliases, at_most=0, conditions=about)]
    for number, pmtu in enumerate((1024, 2048, 4096)):
        x = FAR.with_(pmtu=pmtu)
        report_progress(progress, f"{pmtu} B over 100 ms", 1 + number, 4)
        about = f"Adamap, 1 QP, 400 Gb/s, 100 ms, {pmtu} B, loss 1e-3; a sender has less than 2^23 PSNs outstanding"
        rows += [Row(f"model_far_goodput_{pmtu}", "of 1 - loss", run(x).goodput / (1 - x.loss), conditions=about),
                 Row(f"model_far_psns_{pmtu}", "round trips", (1 << 23) / x.bdp, conditions=about)]
    return rows


def card_memory(_progress=None):
    """Return the rows that compare the constants with the netlist."""
    from weft.tb.verify.bench.adamap_memory import BASE, TABLES, growth
    rows = []
    for name, counted in zip(TABLES, (schemes.ADAMAP_QP, schemes.ADAMAP_PLACE, schemes.ADAMAP_ENTRY), strict=True):
        built = sum(growth(BASE, name, 2 * getattr(BASE, name)).values()) / 8
        rows.append(Row(f"model_card_bytes_{name}", "B", counted, conditions="cost of one more of these"))
        rows.append(Row(f"model_card_bytes_{name}_error", "of the netlist", abs(counted / built - 1), at_most=0.01,
                        conditions="cost of one more of these"))
    return rows
