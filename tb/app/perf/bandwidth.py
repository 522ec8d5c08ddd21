"""Bandwidth test: as many outstanding messages as the queue holds."""

import math
import os
from typing import Any

from weft.driver.verbs.wr import SendWR
from weft.tb.app.perf.endpoint import Endpoint, TestFailed
from weft.tb.app.perf.plan import ATOMIC_BYTES, PEAK_ITERATIONS, Plan
from weft.tb.app.perf.table import Row
from weft.tb.app.stage.host import Host

POLL_NS = 500
WARM = 1          # unmeasured messages of each QP, since the first message of a connection takes extra steps


def program(host: Host, **settings: Any) -> list[Row | None]:
    """Return a row of figures for each size; side ``b`` returns those of the other direction. Program of both hosts."""
    plan = Plan(**settings)
    end = Endpoint(host, plan)
    end.connect()
    if plan.verb == "send" and "target" in end.mrs:
        for n in range(plan.qps):
            for _ in range(plan.rx_depth):
                end.receive(n)
    if source := end.mrs.get("source"):
        source.write(os.urandom(source.length))
    rows = []
    for number, (size, iterations) in enumerate(zip(plan.sizes, plan.iterations, strict=True)):
        host.progress(f"{plan.command}, {size} bytes", number, len(plan.sizes))
        for count, duration_ns in ((WARM, 0), (iterations, plan.duration_ns)):
            end.meet()
            stream = Stream(end, size, count, duration_ns)
            stream.run()
        rows.append(stream.figures())
        compare(end, size)
    end.meet()
    end.close()
    return rows


def compare(end: Endpoint, size: int) -> None:
    """Compare the received data with the data of the peer. Raises TestFailed."""
    plan, host = end.plan, end.host

    def bytes_of(name: str) -> list[str]:
        return [end.mrs[name].read(size, n * plan.slot_bytes).hex() for n in range(plan.qps)]

    if plan.verb == "atomic":
        return
    host.send(bytes_of("source") if "source" in end.mrs else None)
    (sent,) = host.receive()
    if "target" in end.mrs and bytes_of("target") != sent:
        raise TestFailed(f"host {host.side} received other bytes than its peer sent")


class Stream:
    """Messages of one size on all QPs of the requesting hosts; a host that only responds serves them to the end.

    Parameters
    ----------
    size, count
        Bytes of a message, and number of messages of each QP.
    duration_ns
        Time limit that replaces the count, if it is not 0.
    """

    def __init__(self, end: Endpoint, size: int, count: int, duration_ns: int) -> None:
        self._end, self._host, plan = end, end.host, end.plan
        self.size, self._duration_ns = size, duration_ns
        self._count = 1 << 62 if duration_ns else count
        self._asks = plan.bidirectional or end.host.side == "a"
        self._moderation = plan.post_list if duration_ns else plan.moderation(size)
        self._posted, self._done = [0] * plan.qps, [0] * plan.qps
        self._start_ns = end.host.now_ns
        self.posted_ns: list[float] = []              # times of the posts
        self.completed: list[tuple[int, float]] = []  # (number of completions, time)

    def run(self) -> None:
        """Run until both hosts are done."""
        done = False
        while not (done and self._host.has_values):
            if not done and not self._open:
                self._host.send("done")
                done = True
            posted = self._asks and self._post()
            received = self._end.received
            requests = self._end.poll()
            for wc in requests:
                self._done[self._end.index[wc.qp_num]] = wc.wr_id + 1
            if requests:
                self.completed.append((sum(self._done), self._host.now_ns))
            if not (posted or requests or self._end.received > received):
                self._end.rest(POLL_NS)
        self._host.receive()

    @property
    def _more(self) -> bool:
        """True while the time limit, if any, is not reached."""
        return not self._duration_ns or self._host.now_ns < self._start_ns + self._duration_ns

    @property
    def _open(self) -> bool:
        """True while requests remain to be posted or completed."""
        return self._asks and (self._posted != self._done or self._more and min(self._posted) < self._count)

    def _post(self) -> bool:
        """Fill the queues, one QP after the other; return true if a request was posted."""
        plan, before = self._end.plan, len(self.posted_ns)
        for n, posted in enumerate(self._posted):
            while self._more:
                length = min(plan.post_list, self._count - posted)
                if not 0 < length <= plan.tx_depth - (posted - self._done[n]):
                    break
                self._post_list(n, posted, length)
                posted += length
            self._posted[n] = posted
        return len(self.posted_ns) > before

    def _post_list(self, n: int, first: int, length: int) -> None:
        wr: SendWR | None = None
        for k in reversed(range(first, first + length)):
            wr = self._end.request(n, self.size, k, signaled=not (k + 1) % self._moderation or k + 1 == self._count,
                                   next_wr=wr)
        self.posted_ns += [self._host.now_ns] * length
        if wr is not None:
            self._end.qps[n].post_send(wr)

    def figures(self) -> Row | None:
        """Return the figures of this host's direction, None if it sent no requests.

        ``n_iterations``; ``BW_peak`` and ``BW_average`` in bytes per ns; ``MsgRate`` in messages per µs.
        """
        if not self._asks:
            return None
        if self._duration_ns:
            end = self._start_ns + self._duration_ns
            count = max((n for n, at in self.completed if at <= end), default=0)
            ns: float = self._duration_ns
        else:
            count, at = self.completed[-1]
            ns = at - self.posted_ns[0]
        rate = count / max(ns, 1)
        peak = 0 if self._duration_ns or count > PEAK_ITERATIONS else peak_rate(self.posted_ns, self.completed)
        size = ATOMIC_BYTES if self._end.plan.verb == "atomic" else self.size
        return {"MsgSize": size, "n_iterations": count, "BW_peak": peak * size, "BW_average": rate * size,
                "MsgRate": rate * 1000}


def peak_rate(posted_ns: list[float], completed: list[tuple[int, float]]) -> float:
    """Return the best rate between a post and a later completion, in messages per ns.

    Parameters
    ----------
    posted_ns
        Times at which message 0, 1, … was posted.
    completed
        Number of complete messages, and the time in ns, ascending.
    """
    def reached(rate: float) -> bool:
        """Return whether messages i to n − 1 took (n − i) / rate or less, for any i and n."""
        best, i = math.inf, 0
        for n, at in completed:
            while i < n:
                best = min(best, i - rate * posted_ns[i])
                i += 1
            if n - rate * at >= best:
                return True
        return False

    low, high = 0.0, float(len(posted_ns))     # messages per ns: the shortest time is 1 ns
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) else (low, middle)
    return low
