"""Results of an experiment, in named units."""

import functools
import time
from dataclasses import dataclass

import numpy as np

from . import engine
from .description import Fabric
from .experiment import FabricExperiment
from .packets import DATA, QUEUES
from .state import State, make
from .switch import BINS

STARTED = 0.95      # of the bottleneck's capacity: end of start-up


class Unmeasured(Exception):
    """Run without a result; the message is a sentence."""


@dataclass(frozen=True)
class FabricResult:
    """Measurements of one run. The watched port is the bottleneck.

    Attributes
    ----------
    goodput
        Payload delivered by the flows through the watched port, as a share of its payload rate. A flow with several
        equal paths counts if one of them has the port, so that the share may exceed 1.
    jain
        Jain's index of the payload rates of these flows.
    least_share
        Smallest of these rates, as a share of their mean.
    startup_rtts
        Time until the goodput of one longest round trip is 0.95 (1 - loss), in longest round trips; -1: never. It may
        fall below afterwards.
    queue_mean_kib, queue_p99_kib, queue_peak_kib
        Data queue of the watched port: mean and percentile of time, in steps of 1/4096 of the largest buffer, during
        the measurement; peak since the first packet. A packet in transmission is not part of it.
    queue_rtts, queue_p99_rtts
        Mean and 99th percentile of its delay, in shortest round trips.
    other_goodput
        Smallest payload rate of a flow that does not pass the watched port, as a share of its host's payload rate;
        1 if there is none.
    marked, dropped, lost, cut : int
        Packets of all ports: marked, dropped by full buffers, lost on links, lost with links that went down.
    retransmissions, time_outs, cnps, late : int
        Packets sent again, time-outs, congestion notifications, packets that arrived after they were taken for lost.
    in_flight_bdps
        Most packets of one flow in flight, in bandwidth-delay products of the path: watched port, flow's round trip.
    completion_us
        Time until the last finite flow is acknowledged; -1 if one is not, or there is none.
    measured_dropped
        Packets dropped during the measurement.
    trimmed, pauses : int
        Packets of which a switch sent on the headers alone; pauses of links.
    seconds, packets_per_second : float
        Processor time without compilation; transmissions by hosts per second of it.
    """

    goodput: float
    jain: float
    least_share: float
    startup_rtts: float
    queue_mean_kib: float
    queue_p99_kib: float
    queue_peak_kib: float
    queue_rtts: float
    queue_p99_rtts: float
    other_goodput: float
    marked: int
    dropped: int
    measured_dropped: int
    lost: int
    cut: int
    trimmed: int
    pauses: int
    retransmissions: int
    time_outs: int
    cnps: int
    late: int
    in_flight_bdps: float
    completion_us: float
    seconds: float
    packets_per_second: float


@functools.cache
def compile_engine() -> None:
    """Compile the engine, or load it from its cache."""
    x = FabricExperiment()
    engine.run(make(x.build(), x.algorithm, x.config(1e4), 1, {}), 1.0)


def _advance(w: State, until: float) -> None:
    engine.run(w, until)
    if w.s["overflow"]:
        raise Unmeasured("no space for more packets; have smaller buffers, shorter paths or slower links")


def watched_flows(fabric: Fabric) -> list[int]:
    """Return the flows whose shortest path has the watched port; equal paths count."""
    a, b = fabric.watched
    found = []
    for n, flow in enumerate(fabric.flows):
        far, near = fabric.distances(flow.destination), fabric.distances(flow.source)
        found += [n] * (a in near and b in far and near[a] + 1 + far[b] == far[flow.source])
    return found


def measure(x: FabricExperiment) -> FabricResult:
    """Run an experiment and return its results. Raises Unmeasured or BadSettings."""
    fabric = x.build()
    if not watched_flows(fabric):
        raise Unmeasured("no flow passes the watched port; watch another one, or have more flows")
    rtts = [fabric.rtt_ns(flow) for flow in fabric.flows]
    w = make(fabric, x.algorithm, x.config(max(rtts)), x.seed, x.settings_of_algorithm())
    compile_engine()
    began = time.thread_time()
    step, steps = max(rtts), round(x.warmup_rtts) + round(x.measured_rtts)
    received = np.zeros((steps + 1, len(fabric.flows)))
    dropped, lengths = 0, w.lengths.copy()
    for n in range(steps):
        if n == round(x.warmup_rtts):
            dropped, lengths = int(w.port["dropped"].sum()), w.lengths.copy()
        _advance(w, (n + 1) * step)
        received[n + 1] = w.flow["placed"]
    return _result(x, fabric, w, received, dropped, w.lengths - lengths, time.thread_time() - began)


def _result(x: FabricExperiment, fabric: Fabric, w: State, received: np.ndarray, dropped: int, lengths: np.ndarray,
            seconds: float) -> FabricResult:
    rtts, flows = np.array([fabric.rtt_ns(flow) for flow in fabric.flows]), watched_flows(fabric)
    port, step = fabric.ports.index(fabric.watched), rtts.max()
    capacity = float(w.port["rate"][port]) / x.packet_bytes                # packets in a nanosecond
    first = round(x.warmup_rtts)
    rates = (received[-1] - received[first]) / ((len(received) - 1 - first) * step)
    ours, all_rates = rates[flows], np.diff(received[:, flows].sum(axis=1)) / step / capacity
    started = np.flatnonzero(all_rates >= STARTED * (1 - x.loss))
    others = [n for n in range(len(rates)) if n not in flows]
    host_rate = {n: float(w.port["rate"][w.flow["port"][n]]) / x.packet_bytes for n in others}
    mean, p99 = _queue(lengths[port], int(w.s["lengths_most"]))
    finite = np.array([flow.packets > 0 for flow in fabric.flows])
    done = w.flow["done_at"][finite]
    delay_rtts = 1 / float(w.port["rate"][port]) / rtts.min()
    return FabricResult(
        goodput=float(ours.sum() / capacity), jain=float(ours.sum() ** 2 / max(1e-30, len(ours) * (ours ** 2).sum())),
        least_share=float(ours.min() / max(1e-30, ours.mean())),
        startup_rtts=float(started[0] + 1) if len(started) else -1.0, queue_mean_kib=mean / 1024,
        queue_p99_kib=p99 / 1024, queue_peak_kib=int(w.port["queue_peak"][port]) / 1024, queue_rtts=mean * delay_rtts,
        queue_p99_rtts=p99 * delay_rtts, other_goodput=min((float(rates[n]) / host_rate[n] for n in others), default=1),
        marked=int(w.port["marked"].sum()), dropped=int(w.port["dropped"].sum()),
        measured_dropped=int(w.port["dropped"].sum()) - dropped, lost=int(w.port["lost"].sum()),
        cut=int(w.port["cut"].sum()), trimmed=int(w.port["trimmed"].sum()), pauses=int(w.port["pauses"].sum()),
        retransmissions=int(w.flow["missing" if x.recovery == "adamap" else "resent"].sum()),
        time_outs=int(w.flow["time_outs"].sum()), cnps=int(w.flow["cnps"].sum()), late=int(w.flow["late"].sum()),
        in_flight_bdps=float((w.flow["in_flight_peak"] / (capacity * rtts)).max()),
        completion_us=float(done.max()) / 1e3 if finite.any() and done.min() >= 0 else -1.0, seconds=seconds,
        packets_per_second=int(w.flow["sent"].sum()) / max(seconds, 1e-9))


def _queue(lengths: np.ndarray, most: int) -> tuple[float, float]:
    """Return mean and 99th percentile of the queue, in bytes, of the time at each length."""
    shares = lengths / lengths.sum()
    upper = (np.arange(BINS) + 1) * most / BINS
    return float((shares * (upper - most / BINS / 2)).sum()), float(upper[np.searchsorted(shares.cumsum(), 0.99)])


def packets_somewhere(w: State) -> int:
    """Return the packets that wait, are transmitted or are on a line: all packets of the pool that are in use."""
    return int(w.queue["count"].sum() + w.port["busy"].sum())


def queued(w: State, port: int) -> int:
    """Return the bytes in the data queue of a port."""
    return int(w.queue["bytes"][port * QUEUES + DATA])
