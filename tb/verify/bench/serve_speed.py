"""Speed of programs on the direct back end, beside memcpy and TCP over loopback on the same machine.

All are measured in turn, ``RUNS`` times, and the figures are medians. So is the rate of functional cards without loss.
"""

import re
import tempfile
from statistics import median

from weft.driver.ibverbs.build import build
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.verify.bench.fairness import jain
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.figures import printed
from weft.tb.verify.programs.programs import MESSAGES, PASSED, TABLE, one
from weft.tb.verify.programs.session import serving

PORT, RUNS, SECONDS, QPS, REGIONS = 19300, 3, 1, 16, 5000
MB_PER_MIB = (1 << 20) / 1e6
SIZE = ("-s", "65536", "-n", "20000")
SMALL = ("-s", "64", "-n", "400000")
LATENCY = ("-s", "8", "-n", "20000")
ON_CARDS, CARDS_MBPS = ("-s", "65536", "-n", "2000"), 29     # CARDS_MBPS: the rate before the direct back end existed
RATES, LATENCIES = ("ib_write_bw", "ib_read_bw", "ib_send_bw"), ("ib_write_lat", "ib_send_lat")


def measure(progress):
    library, found = build(LIBRARY_FOLDER), []
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder, serving("--backend", "direct") as session:
        speed, shares, regions, spins = (compiled(name, folder, library)
                                         for name in ("speed", "shares", "regions", "post_poll"))
        for run in range(RUNS):
            report_progress(progress, "programs, memcpy and TCP", run, RUNS)
            found.append(measured(session, speed, PORT + 10 * run))
        more = further(session, shares, regions, spins)
    with serving("--backend", "functional") as session:
        more.append(on_cards([perftest(session, PORT + 10 * run, "ib_write_bw", ON_CARDS) for run in range(RUNS)]))
    return rows({name: median(run[name] for run in found) for name in found[0]}) + more


def measured(session, speed, port):
    """Return figures by name: rates in MB/s, round trip and latencies in µs, ``messages`` in millions a second."""
    text = printed(session, speed, str(SECONDS))
    memcpy, kernel, tcp, trip = map(float, re.search(r"memcpy (\d+) kernel (\d+) tcp (\d+) trip (\d+)", text).groups())
    found = {"memcpy": memcpy, "kernel": kernel, "tcp": tcp, "trip": trip / 1000}
    for n, name in enumerate(RATES):
        found[name] = perftest(session, port + n, name, SIZE) * MB_PER_MIB
    for n, name in enumerate(LATENCIES, len(RATES)):
        found[name] = perftest(session, port + n, name, LATENCY)
    found["messages"] = perftest(session, port + 9, "ib_write_bw", SMALL, MESSAGES)
    return found


def further(session, shares, regions, spins):
    """Return the rows of 16 QPs, of regions and of unsuccessful polls; the arguments after the first are programs."""
    counts = [int(count) for count in printed(session, shares, str(QPS), str(SECONDS)).split()]
    took = re.search(r"in ([\d.]+) s", printed(session, regions, "many", str(REGIONS)))[1]
    each = re.search(r"each ([\d.]+)", printed(session, spins, "spin", str(SECONDS)))[1]
    assert len(counts) == QPS, counts
    return [
        Row("serve_speed_jain", "", jain(counts), at_least=0.98,
            conditions=f"shares {QPS} {SECONDS}: {QPS} QPs of a program write 64 KiB each as fast as they can"),
        Row("serve_speed_regions_s", "s", float(took), at_most=1,
            conditions=f"regions many {REGIONS}: regions of a page, with 64 descriptors"),
        Row("serve_speed_vain_poll_us", "µs", float(each), at_most=5, conditions=f"post_poll spin {SECONDS}"),
    ]


def on_cards(found):
    """Return the row of functional cards, from rates of perftest."""
    return Row("serve_speed_functional_mbps", "MB/s", median(found) * MB_PER_MIB, at_least=3 * CARDS_MBPS,
               conditions=f"ib_write_bw {' '.join(ON_CARDS)} on functional cards without loss")


def perftest(session, port, name, options, unit=None):
    """Return the figure of a program of perftest; with ``unit`` MESSAGES its messages per second, in millions."""
    program = next(p for p in TABLE if p.name == name and len(p.options) == 1)
    figure = next(p.figure for p in TABLE if p.unit == MESSAGES) if unit == MESSAGES else program.figure
    program = type(program)(name, program.package, (*program.options, *options), (), figure, unit or program.unit)
    status, value, output = one(session, program, port)
    assert status == PASSED, output
    return value


def rows(found):
    """Return the figures as rows."""
    memcpy, kernel, tcp, trip = found["memcpy"], found["kernel"], found["tcp"], found["trip"]
    made = [
        Row("serve_speed_memcpy_mbps", "MB/s", memcpy, conditions="memcpy of 64 KiB in one program, in the cache"),
        Row("serve_speed_kernel_mbps", "MB/s", kernel,
            conditions="64 KiB by process_vm_readv and process_vm_writev: the two copies that private memory needs"),
        Row("serve_speed_tcp_mbps", "MB/s", tcp, conditions="64 KiB writes over TCP loopback"),
        Row("serve_speed_tcp_round_trip_us", "µs", trip, conditions="8 bytes over TCP loopback, there and back"),
    ]
    for name in RATES:
        conditions = f"{name} {' '.join(SIZE)}"
        made += [Row(f"serve_speed_{name[3:]}_mbps", "MB/s", found[name], conditions=conditions),
                 Row(f"serve_speed_{name[3:]}_of_memcpy", "", found[name] / memcpy, at_least=0.5,
                     conditions=conditions),
                 Row(f"serve_speed_{name[3:]}_of_kernel", "", found[name] / kernel, conditions=conditions),
                 Row(f"serve_speed_{name[3:]}_of_tcp", "", found[name] / tcp, at_least=1, conditions=conditions)]
    for name in LATENCIES:
        conditions = f"{name} {' '.join(LATENCY)}"
        made += [Row(f"serve_speed_{name[3:]}_us", "µs", found[name], at_most=8, conditions=conditions),
                 Row(f"serve_speed_{name[3:]}_of_tcp", "of the round trip", found[name] / trip, at_most=1,
                     conditions=conditions)]
    return [*made, Row("serve_speed_messages_mpps", "million/s", found["messages"], at_least=1,
                       conditions=f"ib_write_bw {' '.join(SMALL)}")]
