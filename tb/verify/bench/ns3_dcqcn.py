"""Comparison of the fabric and DCQCN with ns-3: queue and rates over time of the same flows through one marking port.

The queue disc and its marking are those of ns-3; DCQCN is written from its paper a second time, in C++.
"""

import subprocess
from dataclasses import replace

import numpy as np

from weft.driver.congestion.algorithms import create
from weft.model.fabric import engine
from weft.model.fabric.experiment import FabricExperiment
from weft.model.fabric.result import compile_engine, queued
from weft.model.fabric.state import make
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.verify.bench import ns3

CASE = FabricExperiment(flows=8, jitter_us=0)      # dumbbell of 100 Gb/s, 10 µs, RED from 100 to 400 KiB
STEPS, STEP_NS, START_NS = 3000, 10_000, 200_000   # START_NS: between the first packets of two flows
SETTLED = 1 / 2                                    # share of the run before the figures
RATE, QUEUE = 0.01, 0.15                           # largest differences


def model(x):
    """Return the queue in bytes and the rates in bit/s after each step, in the engine of flows: (steps, 1 + flows)."""
    fabric = x.build()
    fabric = replace(fabric, flows=tuple(replace(flow, start_us=n * START_NS / 1e3)
                                         for n, flow in enumerate(fabric.flows)))
    w = make(fabric, x.algorithm, x.config(x.rtt_us * 1e3), x.seed, x.settings_of_algorithm())
    port, found = fabric.ports.index(fabric.watched), []
    for n in range(STEPS):
        engine.run(w, (n + 1) * STEP_NS)
        found.append([queued(w, port), *(w.flow["rate"] * 8e9)])
    return np.array(found)


def second(built, x):
    """Return the same of ns-3."""
    flow = create(x.algorithm, x.host_gbps * 1e9, x.rtt_us * 1e3)
    arguments = (x.flows, STEPS, STEP_NS, START_NS, x.packet_bytes, x.bottleneck_gbps * 1e9, x.rtt_us * 500,
                 x.mark_from_kib * 1024, x.mark_to_kib * 1024, x.mark_chance, flow.settings.gain, x.cnp_us * 1e3,
                 flow.limit)
    done = subprocess.run([built, *map(str, arguments)], capture_output=True, text=True, check=True)
    return np.array([line.split() for line in done.stdout.splitlines()], float)


def measure(progress):
    """Return the rows: mean and 99th percentile of the queue and sum of the rates, of both and their ratios."""
    built, x = ns3.program("ns3_dcqcn"), CASE
    compile_engine()
    report_progress(progress, "ns-3", 0, 2)
    theirs = second(built, x)
    report_progress(progress, "fabric", 1, 2)
    ours = model(x)
    about = (f"{x.algorithm}, {x.flows} flows that start {START_NS / 1e3:.0f} µs apart, dumbbell, "
             f"{x.bottleneck_gbps:g} Gb/s, {x.rtt_us:g} µs, RED from {x.mark_from_kib:g} to {x.mark_to_kib:g} KiB; "
             f"second half of {STEPS * STEP_NS / 1e6:g} ms")
    figures = {"queue_mean": (lambda a: a[:, 0].mean() / 1024, "KiB", QUEUE),
               "queue_p99": (lambda a: np.percentile(a[:, 0], 99) / 1024, "KiB", QUEUE),
               "rate": (lambda a: a[:, 1:].sum(axis=1).mean() / 1e9, "Gb/s", RATE)}
    first, rows = round(STEPS * SETTLED), []
    for name, (figure, unit, most) in figures.items():
        here, there = figure(ours[first:]), figure(theirs[first:])
        rows += [Row(f"network_ns3_{name}", unit, there, conditions=f"ns-3; {about}"),
                 Row(f"network_fabric_{name}", unit, here, conditions=about),
                 Row(f"network_ns3_{name}_difference", "of ns-3", abs(here / there - 1), at_most=most,
                     conditions="the same")]
    return rows
