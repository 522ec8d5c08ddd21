"""Comparison of the wide-area experiments with ns-3: equal numbers of packets, path, and one processor each."""

import shutil
import subprocess
from pathlib import Path

from weft.model.wan.result import compile_engine
from weft.model.wan.result import measure as run
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.verify.bench.wide_area import BASE

FOLDER = Path(__file__).parent
LIBRARIES = ("core", "network", "internet", "point-to-point", "traffic-control")
HEADER = Path("/usr/include/ns3/core-module.h")
LOSS, RTTS, RATIO_MIN = 1e-2, 2.0, 10
IP_BYTES = 28       # IPv4 and UDP
KINDS = {"udp": "over UDP and IPv4, as RoCEv2 packets go", "bare": "over the devices of the line alone, no IP"}


def program(name="ns3_path", folder=BUILD_ROOT / "ns3"):
    """Return a compiled program of this folder, built if necessary; raise AssertionError if it cannot be built."""
    assert HEADER.exists(), "ns-3 is not installed; on Debian: apt-get install libns3-dev"
    assert shutil.which("g++"), "g++ is not installed; on Debian: apt-get install g++"
    source, built = FOLDER / f"{name}.cpp", folder / name
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["g++", "-std=c++17", "-O2", "-DNDEBUG", "-o", str(built), str(source),
                               *(f"-lns3-{name}" for name in LIBRARIES), "-Wl,--allow-shlib-undefined"],
                              capture_output=True, text=True)
        assert not done.returncode, f"the ns-3 program does not compile: {done.stderr.strip().splitlines()[-1]}"
    return built


def forward(built, kind, packets, x):
    """Return the processor seconds of ns-3 for ``packets`` packets on an experiment's path, and the arrived packets."""
    size = x.pmtu + 12 + 16 + 4 + (IP_BYTES if kind == "bare" else 0)       # BTH, RETH, ICRC
    done = subprocess.run([built, str(packets), str(size), str(round(x.rate_gbps * 1e9)), str(round(x.rtt_ms * 5e5)),
                           str(x.loss), kind], capture_output=True, text=True, check=True)
    seconds, arrived = done.stdout.split()
    return float(seconds), int(arrived)


def measure(progress):
    built, x = program(), BASE.with_(loss=LOSS, warmup_rtts=RTTS / 2, measured_rtts=RTTS / 2)
    compile_engine()
    report_progress(progress, "Adamap", 0, 1 + len(KINDS))
    ours = run(x)
    rows = []
    for number, (kind, words) in enumerate(KINDS.items()):
        report_progress(progress, f"ns-3, {kind}", 1 + number, 1 + len(KINDS))
        seconds, arrived = forward(built, kind, ours.packets, x)
        assert abs(arrived / ours.packets - (1 - LOSS)) < LOSS, f"{arrived} of {ours.packets} packets arrived in ns-3"
        about = (f"{ours.packets:,} packets of {x.pmtu} bytes, {x.rate_gbps:g} Gb/s, {x.rtt_ms:g} ms, loss {LOSS:g}; "
                 f"in ns-3 {words}, and no recovery; processor time")
        rows += [Row(f"model_ns3_{kind}_packets_per_second", "packets/s", ours.packets / seconds, conditions=about),
                 Row("model_vs_ns3_speed_ratio" if kind == "udp" else f"model_vs_ns3_{kind}_speed_ratio", "times",
                     ours.packets_per_second * seconds / ours.packets,
                     at_least=RATIO_MIN if kind == "udp" else None, conditions=about)]
    return rows
