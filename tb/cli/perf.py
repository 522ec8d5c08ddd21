"""``weft write_bw``, ``write_lat`` and so on: tests as linux-rdma's perftest has them, with its options."""

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.hdl.contract import abi, wire
from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import card_params, choice, number, refuse

ABOUT = {
    "write_bw": "Bandwidth of RDMA WRITE between two cards, as perftest's ib_write_bw.",
    "write_lat": "Latency of RDMA WRITE, half of a round trip between two programs, as perftest's ib_write_lat.",
    "send_bw": "Bandwidth of SEND between two cards, as perftest's ib_send_bw.",
    "send_lat": "Latency of SEND, half of a round trip between two programs, as perftest's ib_send_lat.",
    "read_bw": "Bandwidth of RDMA READ between two cards, as perftest's ib_read_bw.",
    "read_lat": "Latency of RDMA READ, as perftest's ib_read_lat.",
    "atomic_bw": "Rate of atomics between two cards, as perftest's ib_atomic_bw.",
    "atomic_lat": "Latency of an atomic, as perftest's ib_atomic_lat.",
}
SIZE_BW, SIZE_LAT, RX_DEPTH, TX_DEPTH = 65536, 2, 512, 128
SIZE_MAX, DEPTH_MAX, RTT_US_MAX, NS_MAX = 1 << 23, 1 << 14, 1_000_000, 10**10
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1_000_000_000}
PANEL = "Measuring, as perftest does"


def flag(help_text, *names, metavar="NUMBER"):
    return typer.Option(*names, help=help_text, metavar=metavar, show_default=False)


def switch(help_text, *names):
    return typer.Option(*names, help=help_text)


def command(name):
    """The command of one test."""
    def run(
        size: Annotated[str | None, flag("Bytes of a message: 65536, of latency 2, of atomics always 8.",
                                         "-s", "--size")] = None,
        every: Annotated[bool, switch("All sizes from 2 to 2^23 bytes.", "-a", "--all")] = False,
        iters: Annotated[str | None, flag("Messages of each QP; what takes some seconds by itself.",
                                          "-n", "--iters")] = None,
        duration: Annotated[str | None, flag("Count what completes in so much simulated time: 200us, 1ms, or seconds.",
                                             "-D", "--duration", metavar="TIME")] = None,
        qp: Annotated[str | None, flag("Queue pairs, of bandwidth: 1.", "-q", "--qp")] = None,
        mtu: Annotated[str, flag("Path MTU: 4096.", "-m", "--mtu")] = "4096",
        tx_depth: Annotated[str | None, flag("Requests under way on a QP, of bandwidth: 128.",
                                             "-t", "--tx-depth")] = None,
        rx_depth: Annotated[str | None, flag("Receives posted on a QP, of sends: 512.", "-r", "--rx-depth")] = None,
        bidirectional: Annotated[bool, switch("Both directions at once; rates add up.",
                                              "-b", "--bidirectional")] = False,
        inline_size: Annotated[str | None, flag("Messages of up to so many bytes go inline: 0.",
                                                "-I", "--inline_size")] = None,
        post_list: Annotated[str | None, flag("Requests posted at once, of bandwidth: 1.", "-l", "--post_list")] = None,
        cq_mod: Annotated[str | None, flag("Requests with one completion, of bandwidth: 1 above 8192 bytes, 64 else.",
                                           "-Q", "--cq-mod")] = None,
        outs: Annotated[str | None, flag("Reads and atomics under way: 16.", "-o", "--outs")] = None,
        atomic_type: Annotated[str | None, flag("FETCH_AND_ADD or CMP_AND_SWAP.", "-A", "--atomic_type",
                                                metavar="TYPE")] = None,
        events: Annotated[bool, switch("Sleep until an event instead of polling.", "-e", "--events")] = False,
        report_gbits: Annotated[bool, switch("Rates in Gb/sec instead of MiB/sec.", "--report_gbits")] = False,
        out_json: Annotated[bool, switch("Leave JSON, too.", "--out_json")] = False,
        out_json_file: Annotated[Path, flag("Where: perftest_out.json.", "--out_json_file", metavar="PATH")] = Path(
            "perftest_out.json"),
        backend: Annotated[str, flag("functional, model or rtl: functional.", "--backend",
                                     metavar="NAME")] = "functional",
        loss: Annotated[str, flag("Chance of every frame to get lost: 0.", "--loss")] = "0",
        rtt_us: Annotated[str, flag("Round trip time of the link, microseconds: 0.", "--rtt-us")] = "0",
        preset: Annotated[str, flag("Size of both cards: test, basic or full: test.", "--preset",
                                    metavar="NAME")] = "test",
        seed: Annotated[str, flag("Of every random choice: 1.", "--seed")] = "1",
    ):
        options = dict(locals())
        plan, stage = Checked(name, **{key: options[key] for key in Checked.WANTED}).plan()
        with needs("sim"):
            from weft.tb.app.perf.run import run as measure
            raise typer.Exit(measure(plan, backend, stage, gbits=report_gbits,
                                     out_json=out_json_file if out_json else None,
                                     command=shlex.join(["weft", *sys.argv[1:]])))

    run.__name__, run.__doc__ = name, ABOUT[name]
    return run


class Checked:
    """What a person typed, as a plan; or an end with a sentence."""

    WANTED = ("size", "every", "iters", "duration", "qp", "mtu", "tx_depth", "rx_depth", "bidirectional", "inline_size",
              "post_list", "cq_mod", "outs", "atomic_type", "events", "backend", "loss", "rtt_us", "preset", "seed")

    def __init__(self, name, **options):
        self.name, self.verb, self.bandwidth = name, name.partition("_")[0], name.endswith("_bw")
        self.options = options

    def plan(self):
        """(Plan, Stage)"""
        with needs("sim"):
            from weft.tb.app.perf.plan import ATOMICS, SIZE_LOG2_MAX, Plan
            from weft.tb.app.stage.stage import BACKENDS, Stage
            from weft.tb.sim.pair.settings import timeout
        given, atomic, fetches = self.options, self.verb == "atomic", self.verb in ("read", "atomic")
        backend = BACKENDS[choice("--backend", given["backend"], BACKENDS)]
        card = card_params(given["preset"])
        for wrong, option, why in (
                (atomic and (given["size"] or given["every"]), "-s and -a", "atomics have 8 bytes"),
                (given["size"] and given["every"], "-s with -a", "-a is all sizes"),
                (given["every"] and given["duration"], "-a with -D", "a duration is of one size, as in perftest"),
                (given["iters"] and given["duration"], "-n with -D", "one of them says when the test ends"),
                (given["bidirectional"] and not self.bandwidth, "-b", "a test of latency goes to and fro by itself"),
                (given["rx_depth"] and self.verb != "send", "-r", "only sends take receives"),
                (given["atomic_type"] and not atomic, "-A", "only the tests of atomics have types"),
                (given["outs"] and not fetches, "-o", "only reads and atomics have a limit of their own"),
                (given["inline_size"] and fetches, "-I", "what is fetched has no data that could be inline"),
                *((given[key] and not self.bandwidth, short, "a test of latency has one message under way")
                  for key, short in (("qp", "-q"), ("tx_depth", "-t"), ("post_list", "-l"), ("cq_mod", "-Q")))):
            if wrong:
                refuse(f"{self.name} does not take {option}: {why}")
        sizes = [8] if atomic else [1 << n for n in range(1, SIZE_LOG2_MAX + 1)] if given["every"] else [
            self._int("size", SIZE_BW if self.bandwidth else SIZE_LAT, 1, SIZE_MAX)]
        tx_depth = self._int("tx_depth", TX_DEPTH if self.bandwidth else 1, 1, DEPTH_MAX)
        post_list = self._int("post_list", 1, 1, tx_depth)
        if post_list > 1 and given["cq_mod"]:
            refuse(f"{self.name} does not take -Q with -l: a posted list has one completion")
        plan = Plan(
            command=self.name, sizes=sizes, iterations=self._iterations(sizes, backend),
            duration_ns=self._duration(), qps=self._int("qp", 1, 1, card.qps - 2),
            mtu=int(choice("--mtu", given["mtu"], [str(pmtu) for pmtu in wire.PMTUS.values()])),
            tx_depth=tx_depth, rx_depth=self._int("rx_depth", RX_DEPTH, 1, DEPTH_MAX), post_list=post_list,
            cq_mod=self._int("cq_mod", 0, 1, tx_depth), inline_size=self._int("inline_size", 0, 0, 256),
            outs=self._int("outs", 16, 1, 16), bidirectional=given["bidirectional"], events=given["events"],
            atomic_type=choice("--atomic_type", given["atomic_type"] or "FETCH_AND_ADD", ATOMICS),
            timeout=timeout(number("--rtt-us", given["rtt_us"], float, 0, RTT_US_MAX)))
        self._check_memory(plan, card)
        return plan, Stage(preset=given["preset"], loss=number("--loss", given["loss"], float, 0, 1),
                           rtt_us=float(given["rtt_us"]), seed=number("--seed", given["seed"], int, 0, (1 << 31) - 1))

    def _int(self, name, default, low, high):
        text = self.options[name]
        return default if text is None else number(f"--{name}", text, int, low, high)

    def _iterations(self, sizes, backend):
        """As many as asked for, or what the back end moves in some seconds."""
        if self.options["iters"] is not None:
            return [number("--iters", self.options["iters"], int, 1, 10**9)] * len(sizes)
        messages = backend.messages if self.bandwidth else max(10, backend.messages // 5)
        return [max(5, min(messages, backend.bytes // size)) for size in sizes]

    def _duration(self):
        text = self.options["duration"]
        if text is None:
            return 0
        found = re.fullmatch(r"([\d.]+)(ns|us|ms|s|)", text)
        value, unit = found.groups() if found else (text, "")
        return round(number("--duration", value, float, 1 / UNITS[unit], NS_MAX / UNITS[unit]) * UNITS[unit])

    @staticmethod
    def _check_memory(plan, card):
        """The card maps what the test uses; operations map it a second time."""
        mrs = 1 + (plan.bidirectional or not plan.is_bandwidth and not plan.fetches)
        needed = plan.qps * plan.slot_bytes * (mrs + (plan.verb in ("send", "read")))
        if needed > (room := card.ptes * abi.PAGE_4K):
            refuse(f"{plan.qps} QPs with messages of {max(plan.sizes):,} bytes take {needed:,} bytes of mapped memory; "
                   f"a card of preset {card.name!r} maps {room:,}; choose a larger one with --preset")


COMMANDS = tuple(map(command, ABOUT))
