"""Options of perftest's commands, and the plan made from them."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from weft.hdl.contract import abi
from weft.hdl.contract.params import CardParams, preset
from weft.model.settings import PMTUS, BadSetting, BadSettings, Setting, check
from weft.tb.app.stage.stage import BACKENDS, Backend, Stage

if TYPE_CHECKING:
    from weft.tb.app.perf.plan import Plan

SIZE_BW, SIZE_LAT, RX_DEPTH, TX_DEPTH = 65536, 2, 512, 128
SIZE_MAX, DEPTH_MAX, ITERATIONS_MAX, INLINE_MAX, OUTS_MAX = 1 << 23, 1 << 14, 10**9, 256, 16
QPS_MAX = preset("full").qps - 2
NS_MAX, UNITS = 10**10, {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1_000_000_000}
ATOMIC_TYPES = ("FETCH_AND_ADD", "CMP_AND_SWAP")


def _duration(text: str) -> int:
    """Convert a text to nanoseconds."""
    found = re.fullmatch(r"([\d.]+)(ns|us|ms|s|)", text)
    try:
        value = round(float(found[1]) * UNITS[found[2]]) if found else 0
    except ValueError:
        value = 0
    if not 1 <= value <= NS_MAX:
        raise ValueError(f"it must be a time from 1ns to {NS_MAX // UNITS['s']}s")
    return value


def _number(text: str, *names: str, least: int = 1, most: int) -> Setting:
    return Setting(text, names=names, least=least, most=most)


def _flag(text: str, *names: str) -> Setting:
    return Setting(text, names=names)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one test, with perftest's names; None: perftest's default. Raises BadSetting."""

    size: Annotated[int | None, _number("Bytes of a message: 65536, of latency 2, of atomics always 8.",
                                        "-s", "--size", most=SIZE_MAX)] = None
    every: Annotated[bool, _flag("All sizes from 2 to 2^23 bytes.", "-a", "--all")] = False
    iters: Annotated[int | None, _number("Messages of each QP; by default as many as take some seconds.",
                                         "-n", "--iters", most=ITERATIONS_MAX)] = None
    duration: Annotated[int | None, Setting("Count completions in a duration of simulated time: 200us, 1ms, or "
                                            "seconds, each of which takes an hour.",
                                            names=("-D", "--duration"), read=_duration, metavar="TIME")] = None
    qp: Annotated[int | None, _number("Queue pairs, of bandwidth: 1.", "-q", "--qp", most=QPS_MAX)] = None
    mtu: Annotated[int, Setting("Path MTU.", names=("-m", "--mtu"), choices=PMTUS)] = 4096
    tx_depth: Annotated[int | None, _number("Outstanding requests of a QP, of bandwidth: 128.",
                                            "-t", "--tx-depth", most=DEPTH_MAX)] = None
    rx_depth: Annotated[int | None, _number("Receives posted on a QP, of sends: 512.",
                                            "-r", "--rx-depth", most=DEPTH_MAX)] = None
    bidirectional: Annotated[bool, _flag("Both directions at once; rates add up.", "-b", "--bidirectional")] = False
    inline_size: Annotated[int | None, _number("Largest message that goes inline, in bytes: 0.",
                                               "-I", "--inline_size", least=0, most=INLINE_MAX)] = None
    post_list: Annotated[int | None, _number("Requests posted at once, of bandwidth: 1.",
                                             "-l", "--post_list", most=DEPTH_MAX)] = None
    cq_mod: Annotated[int | None, _number("Requests with one completion, of bandwidth: 1 above 8192 bytes, 64 else.",
                                          "-Q", "--cq-mod", most=DEPTH_MAX)] = None
    outs: Annotated[int | None, _number("Outstanding reads and atomics: 16.", "-o", "--outs", most=OUTS_MAX)] = None
    atomic_type: Annotated[str | None, Setting("Kind of the atomics, FETCH_AND_ADD by default.",
                                               names=("-A", "--atomic_type"), choices=ATOMIC_TYPES)] = None
    events: Annotated[bool, _flag("Sleep until an event instead of polling.", "-e", "--events")] = False

    def __post_init__(self) -> None:
        check(self)

    def plan(self, name: str, backend: str, stage: Stage) -> "Plan":
        """Return the Plan of the test ``name``. Raises BadSettings."""
        from weft.tb.app.perf.plan import ATOMIC_BYTES, SIZE_LOG2_MAX, Plan
        from weft.tb.sim.pair.settings import timeout

        verb, bandwidth = name.partition("_")[0], name.endswith("_bw")
        self._check_test(name, verb, bandwidth)
        if verb == "atomic":
            sizes = [ATOMIC_BYTES]
        elif self.every:
            sizes = [1 << n for n in range(1, SIZE_LOG2_MAX + 1)]
        else:
            sizes = [self.size or (SIZE_BW if bandwidth else SIZE_LAT)]
        tx_depth = self.tx_depth or (TX_DEPTH if bandwidth else 1)
        for option, most in (("qp", preset(stage.preset).qps - 2), ("post_list", tx_depth), ("cq_mod", tx_depth)):
            if (value := getattr(self, option)) is not None and value > most:
                raise BadSetting(option, value, f"it must be a whole number from 1 to {most}")
        plan = Plan(
            command=name, sizes=sizes, iterations=self._iterations(sizes, BACKENDS[backend], bandwidth),
            duration_ns=self.duration or 0, qps=self.qp or 1, mtu=self.mtu, tx_depth=tx_depth,
            rx_depth=self.rx_depth or RX_DEPTH, post_list=self.post_list or 1, cq_mod=self.cq_mod or 0,
            inline_size=self.inline_size or 0, outs=self.outs or OUTS_MAX, bidirectional=self.bidirectional,
            events=self.events, atomic_type=self.atomic_type or ATOMIC_TYPES[0], timeout=timeout(stage.rtt_us))
        _check_memory(plan, preset(stage.preset))
        return plan

    def _check_test(self, name: str, verb: str, bandwidth: bool) -> None:
        """Reject options that the test does not use, and combinations that exclude each other."""
        atomic, fetches = verb == "atomic", verb in ("read", "atomic")
        for wrong, option, why in (
                (atomic and (self.size or self.every), "-s and -a", "atomics have 8 bytes"),
                (self.size and self.every, "-s with -a", "-a is all sizes"),
                (self.every and self.duration, "-a with -D", "a duration is of one size, as in perftest"),
                (self.iters and self.duration, "-n with -D", "one of them ends the test"),
                (self.bidirectional and not bandwidth, "-b", "a test of latency uses both directions already"),
                (self.rx_depth and verb != "send", "-r", "only sends take receives"),
                (self.atomic_type and not atomic, "-A", "only the tests of atomics have types"),
                (self.outs and not fetches, "-o", "only reads and atomics have a separate limit"),
                (self.inline_size is not None and fetches, "-I", "a read or an atomic has no inline data"),
                *((getattr(self, key) and not bandwidth, short, "a test of latency has one outstanding message")
                  for key, short in (("qp", "-q"), ("tx_depth", "-t"), ("post_list", "-l"), ("cq_mod", "-Q"))),
                ((self.post_list or 1) > 1 and self.cq_mod, "-Q with -l", "a posted list has one completion")):
            if wrong:
                raise BadSettings(f"{name} does not take {option}: {why}")

    def _iterations(self, sizes: list[int], backend: Backend, bandwidth: bool) -> list[int]:
        """Return the given number, or the number that the back end processes in some seconds, for each size."""
        if self.iters is not None:
            return [self.iters] * len(sizes)
        messages = backend.messages if bandwidth else max(10, backend.messages // 5)
        return [max(5, min(messages, backend.bytes // size)) for size in sizes]


def _check_memory(plan: "Plan", card: CardParams) -> None:
    """Check that the card can map the memory of the test; operations map it a second time."""
    needed = plan.qps * plan.slot_bytes * (len(plan.memory("a")) + (plan.verb in ("send", "read")))
    if needed > (mapped := card.ptes * abi.PAGE_4K):
        raise BadSettings(f"{plan.qps} QPs with messages of {max(plan.sizes):,} bytes take {needed:,} bytes of mapped "
                          f"memory; a card of preset {card.name!r} maps {mapped:,}; choose a larger one with --preset")
