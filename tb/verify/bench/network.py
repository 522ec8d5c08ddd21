"""Flows that share a fabric, compared with their targets: goodput, queue, losses, fairness, start-up.

Every experiment is a :class:`~weft.model.fabric.experiment.FabricExperiment` with seed 1 and the settings that its row
states. The algorithm for short paths is `swift`, that for long paths `rate-match`; the rows of `dcqcn` have
no limit, nor has the victim of 127 senders that shares their uplink. The rows of a cut path are of two timed cards,
those of a reaction of timed cards and of the gateware, those of pacing of the pacer's gateware.
"""

import itertools

from weft.driver.congestion.swift import SwiftSettings
from weft.model.fabric.experiment import FabricExperiment
from weft.model.fabric.recovery import NAMES as RECOVERIES
from weft.model.fabric.result import FabricResult, measure
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.verify.bench import cut_path, pacing, reaction

SHORT = FabricExperiment(warmup_rtts=1500, measured_rtts=2000)
LONG = FabricExperiment(fabric="wan", algorithm="rate-match", bottleneck_gbps=40, marking="none", rtt_us=10_000,
                        warmup_rtts=40, measured_rtts=20)
BDP_KIB = 40e9 / 8 * 10e-3 / 1024       # of LONG
FLOWS = (2, 16, 64)
INCASTS = (("incast", 15), ("incast-uplink", 15), ("incast", 127), ("incast-uplink", 127))     # fabric, senders
LOSSES = (0.0, 1e-3, 1e-2)
BUFFERS = (0.05, 1.0)                   # in bandwidth-delay products
GOODPUT, QUEUE, JAIN, VICTIM = 0.97, 1.5, 0.98, 0.98
LONG_GOODPUT, STARTUP, DELAY, JAIN_LONG, JAIN_MIXED = 0.95, 5, 0.25, 0.95, 0.8


def _target_kib(x: FabricExperiment) -> float:
    """Return the queue that an algorithm aims at: the delay of Swift's smallest flows, or where RED marks all."""
    if x.algorithm == "swift":
        s = SwiftSettings()
        return (s.queue_us + s.scaled_us) * x.bottleneck_gbps * 125 / 1024
    return x.mark_to_kib


def bottleneck(algorithm: str, flows: int) -> list[Row]:
    """Return the rows of flows over one marking bottleneck."""
    x = SHORT.with_(algorithm=algorithm, flows=flows)
    found, held = measure(x), algorithm == "swift"
    name, about = f"network_{algorithm}_{flows}", f"{algorithm}, {flows} flows, dumbbell, 100 Gb/s, 10 µs, 4096 B"
    return [
        Row(f"{name}_goodput", "of payload", found.goodput, at_least=GOODPUT if held else None, conditions=about),
        Row(f"{name}_queue_p99", "of target", found.queue_p99_kib / _target_kib(x), at_most=QUEUE if held else None,
            conditions=f"the same; target {_target_kib(x):,.0f} KiB"),
        Row(f"{name}_dropped", "packets", found.dropped, at_most=0 if held else None,
            conditions="the same, from the first packet"),
        Row(f"{name}_jain", "", found.jain, at_least=JAIN if held else None, conditions="the same")]


def incast(algorithm: str, fabric: str, senders: int) -> list[Row]:
    """Return the rows of senders to one host, and of a victim: a flow to another port of the same switch.

    With the fabric ``incast-uplink`` all of them also share the uplink to this switch.
    """
    found, held = measure(SHORT.with_(fabric=fabric, algorithm=algorithm, flows=senders + 1)), algorithm == "swift"
    alone = measure(SHORT.with_(fabric="pair", algorithm=algorithm, flows=1))
    name = f"network_{algorithm}_{fabric}".replace("-", "_") + f"_{senders}" * (senders != INCASTS[0][1])
    shared = ", uplink of 200 Gb/s" * (fabric == "incast-uplink")
    about = f"{algorithm}, {senders} senders to one{shared}, 100 Gb/s, 10 µs, 4096 B"
    return [
        Row(f"{name}_goodput", "of payload", found.goodput, at_least=0.95 if held else None, conditions=about),
        Row(f"{name}_time_outs", "", found.time_outs, at_most=0 if held else None, conditions="the same"),
        Row(f"{name}_dropped", "packets", found.dropped, at_most=0 if held else None,
            conditions="the same, from the first packet; buffer of 32 MiB"),
        Row(f"{name}_victim", "of alone", found.other_goodput / alone.goodput,
            at_least=VICTIM if held and (fabric, senders) != INCASTS[-1] else None,
            conditions="the same; a flow to another port of the last switch")]


def _long(name: str, x: FabricExperiment, about: str, jain: float = JAIN_LONG) -> list[Row]:
    found: FabricResult = measure(x)
    rows = [Row(f"{name}_goodput", "of 1 - loss", found.goodput / (1 - x.loss), at_least=LONG_GOODPUT,
                conditions=f"rate-match, {x.flows} flow{'s' * (x.flows > 1)}, 40 Gb/s, {about}"),
            Row(f"{name}_startup", "RTT", found.startup_rtts, at_most=STARTUP, conditions="the same"),
            Row(f"{name}_queue_delay", "RTT", found.queue_rtts, at_most=DELAY, conditions="the same; mean"),
            Row(f"{name}_in_flight", "BDP", found.in_flight_bdps, at_most=2.01, conditions="the same; peak of a flow"),
            Row(f"{name}_time_outs", "", found.time_outs, conditions="the same"),
            Row(f"{name}_dropped", "packets", found.dropped, conditions="the same, from the first packet")]
    if x.flows > 1:
        rows.append(Row(f"{name}_jain", "", found.jain, at_least=jain, conditions="the same"))
    return rows


def long_paths() -> list[Row]:
    """Return the rows of long paths: losses, buffers, many flows, mixed and longer round trips."""
    rows = []
    for loss in LOSSES:
        for buffer in BUFFERS:
            x = LONG.with_(flows=2, loss=loss, buffer_kib=round(buffer * BDP_KIB))
            rows += _long(f"network_wan_10_loss_{loss:g}_buffer_{buffer:g}", x,
                          f"10 ms, loss {loss:g}, buffer {buffer:g} BDP")
    x = LONG.with_(buffer_kib=round(BDP_KIB))
    rows += _long("network_wan_10_64_flows", x.with_(flows=64, warmup_rtts=100), "10 ms, buffer 1 BDP")
    x = x.with_(buffer_kib=round(10 * BDP_KIB))
    rows += _long("network_wan_100", x.with_(rtt_us=100_000, flows=2, loss=1e-3, warmup_rtts=10, measured_rtts=10),
                  "100 ms, loss 0.001, buffer 1 BDP")
    rows += _long("network_wan_mixed", x.with_(flows=2, rtt_ratio=10, warmup_rtts=20, measured_rtts=10),
                  "10 and 100 ms, buffer 1 BDP of 100 ms; round trips of start-up are the longer ones", JAIN_MIXED)
    return rows


def rivals() -> list[Row]:
    """Return the rows of other recoveries on a long path, of which none has a limit, with two algorithms."""
    kib, rows = round(BDP_KIB), []
    red = {"marking": "red", "mark_from_kib": 0.2 * kib, "mark_to_kib": 0.8 * kib}
    for algorithm, name, loss in itertools.product(("dcqcn", "rate-match"), RECOVERIES, LOSSES):
        x = LONG.with_(algorithm=algorithm, recovery=name, flows=2, loss=loss, buffer_kib=kib, **red)
        rows.append(Row(
            f"network_wan_10_{algorithm}_{name}_loss_{loss:g}_goodput".replace("-", "_"), "of 1 - loss",
            measure(x).goodput / (1 - loss), conditions=f"{algorithm}, {name}, 2 flows, 40 Gb/s, 10 ms, loss {loss:g}, "
                                                        "buffer 1 BDP, RED from 0.2 to 0.8 BDP"))
    return rows


def measure_all(progress) -> list[Row]:
    """Return the rows of all experiments."""
    parts = [lambda a=a, n=n: bottleneck(a, n) for a in ("swift", "dcqcn") for n in FLOWS]
    parts += [lambda a=a, i=i: incast(a, *i) for a in ("swift", "dcqcn") for i in INCASTS]
    parts += [long_paths, rivals, cut_path.rows, reaction.rows, pacing.rows]
    rows = []
    for done, part in enumerate(parts):
        report_progress(progress, "network", done, len(parts))
        rows += part()
    return rows
