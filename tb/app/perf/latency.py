"""Latency test: one message at a time. Writes and sends: half of the round trip; reads and atomics: all of it."""

import statistics
from collections.abc import Callable
from typing import Any

from weft.tb.app.perf.endpoint import Endpoint, TestFailed
from weft.tb.app.perf.plan import Plan
from weft.tb.app.perf.table import Row
from weft.tb.app.stage.host import Host
from weft.tb.sim.flow.percentile import percentile

POLL_NS = 50      # shortest interval between polls of memory, which themselves take no time
WARM = 2          # unmeasured round trips, since the first ones of a connection take extra steps

Step = Callable[[Endpoint, int, int], None]     # of a host in a round trip: its endpoint, bytes, number of the message


def program(host: Host, **settings: Any) -> list[Row]:
    """Return a row of figures for each size on side ``a``. Program of both hosts."""
    plan = Plan(**settings)
    end = Endpoint(host, plan)
    end.connect()
    if plan.verb == "send":
        for _ in range(plan.rx_depth):
            end.receive(0)
    steps: dict[str, tuple[Step, Step | None]] = {"write": (write, write_back), "send": (send, send_back)}
    ping, pong = steps.get(plan.verb, (fetch, None))
    rows = []
    for number, (size, iterations) in enumerate(zip(plan.sizes, plan.iterations, strict=True)):
        host.progress(f"{plan.command}, {size} bytes", number, len(plan.sizes))
        end.meet()
        if host.side == "b":
            answer(end, pong, size)
        else:
            rows.append(ask(end, ping, size, iterations))
    end.meet()
    end.close()
    return rows


def ask(end: Endpoint, ping: Step, size: int, iterations: int) -> Row:
    """Return the figures of one size, in µs."""
    host, plan, began = end.host, end.plan, end.host.now_ns
    taken_ns = []
    for n in range(-WARM, 1 << 62):
        if n == 0:
            began = host.now_ns
        over = host.now_ns - began >= plan.duration_ns if plan.duration_ns else n >= iterations
        if n > 0 and over:
            break
        host.send("next")
        start = host.now_ns
        ping(end, size, n + WARM)
        if n >= 0:
            taken_ns.append((host.now_ns - start) / (1 if plan.fetches else 2))
    host.send("over")
    return {"MsgSize": size, "n_iterations": len(taken_ns)} | summary([ns / 1000 for ns in taken_ns])


def summary(taken: list[float]) -> Row:
    """Return the figures of a list of times, with perftest's names."""
    taken = sorted(taken)
    return {"t_min": taken[0], "t_max": taken[-1], "t_typical": statistics.median(taken),
            "t_avg": statistics.fmean(taken), "t_stdev": statistics.pstdev(taken),
            "percentile_99": percentile(taken, 0.99), "percentile_99.9": percentile(taken, 0.999)}


def answer(end: Endpoint, pong: Step | None, size: int) -> None:
    """Answer messages until the other host sends the end of the test."""
    for n in range(1 << 62):
        while not end.host.has_values:
            end.look(POLL_NS)
        end.wait_for_change()
        if end.host.receive() == ("over",):
            return
        if pong:
            pong(end, size, n)


def pattern(size: int, n: int) -> bytes:
    """Return the payload of message number ``n``, which differs from the one before in every byte."""
    return bytes([n % 255 + 1]) * size


def post(end: Endpoint, size: int, n: int) -> None:
    end.posted += 1
    end.wait_for_change()
    end.qps[0].post_send(end.request(0, size, n, signaled=True))


def collect(end: Endpoint, completed: int = 0, received: int = 0) -> None:
    """Wait until these numbers of requests and receives are complete, counted from the first one."""
    while end.completed < completed or end.received < received:
        if not end.poll():
            end.rest(POLL_NS)


def write(end: Endpoint, size: int, n: int) -> None:
    """Write, and wait until the same bytes are in this host's memory."""
    post_pattern(end, size, n)
    await_pattern(end, size, n)
    collect(end, end.posted)


def write_back(end: Endpoint, size: int, n: int) -> None:
    await_pattern(end, size, n)
    post_pattern(end, size, n)
    collect(end, end.posted)


def post_pattern(end: Endpoint, size: int, n: int) -> None:
    end.mrs["source"].write(pattern(size, n))
    post(end, size, n)


def await_pattern(end: Endpoint, size: int, n: int) -> None:
    """Poll the last byte, then all bytes: a lost packet before it arrives later."""
    wanted, target = pattern(size, n), end.mrs["target"]
    while target.read(1, size - 1) != wanted[-1:] or target.read(size, 0) != wanted:
        end.look(POLL_NS)
    end.wait_for_change()


def send(end: Endpoint, size: int, n: int) -> None:
    post_pattern(end, size, n)
    collect(end, end.posted, end.posted)
    check(end, size, n)


def send_back(end: Endpoint, size: int, n: int) -> None:
    collect(end, received=end.posted + 1)
    check(end, size, n)
    post_pattern(end, size, n)
    collect(end, end.posted)


def check(end: Endpoint, size: int, n: int) -> None:
    if end.mrs["target"].read(size, 0) != pattern(size, n):
        raise TestFailed(f"host {end.host.side} received other bytes than its peer sent")


def fetch(end: Endpoint, size: int, n: int) -> None:
    post(end, size, n)
    collect(end, end.posted)
