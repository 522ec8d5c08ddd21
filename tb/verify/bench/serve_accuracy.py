"""Comparison of figures of programs on served RTL in simulated time with the benchmarks of the same cards.

Bandwidth is compared with ``write_payload_gbps``, latency with ``post_send_to_receiver_completion_ns``. Both references
are measured in the same run with the same cards, hosts, cable and sizes. The remaining differences: perftest counts its
first message with the others, and reading a clock takes a program 20 ns.
"""

import re
from dataclasses import replace

from weft.driver.ibverbs.build import build
from weft.driver.terms.enums import WROpcode
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.verify.bench import latency, verbs
from weft.tb.verify.bench.benchmark import CARDS
from weft.tb.verify.programs.programs import PASSED, TABLE, one
from weft.tb.verify.programs.session import serving

PORT, SEED, LOSS = 18500, "1", "0.01"
NEAR = {"at_least": 0.95, "at_most": 1.05}
BANDWIDTH, BRIEF, LATENCY = ("-n", "100"), ("-n", "60"), ("-n", "50", "-s", "64")
GBPS_PER_MIB = 8 * (1 << 20) / 1e9
_LAST = re.compile(r"^host a: .*; (\d+) packets lost, (\d+) sent again$", re.MULTILINE)


def measure(progress):
    build(LIBRARY_FOLDER)
    report_progress(progress, "what the benchmarks say", 0, 4)
    gbps = verbs.run_operations(progress=progress)[WROpcode.RDMA_WRITE.name]
    reference = {row.name: row.value for row in latency.measure(progress)}
    microseconds = reference["post_send_to_receiver_completion_ns"] / 1000
    report_progress(progress, "programs without loss", 1, 4)
    (rate, taken), _, _ = served("rtl", "0", ("ib_write_bw", *BANDWIDTH), ("ib_write_lat", *LATENCY))
    lossy = []
    for again in range(2):
        report_progress(progress, f"a program with loss, seed {SEED}", 2 + again, 4)
        lossy.append(served("rtl", LOSS, ("ib_write_bw", *BRIEF)))
    return rows(gbps, microseconds, rate * GBPS_PER_MIB, taken, lossy)


def rows(gbps, microseconds, rate, taken, lossy):
    """Return the findings as rows; the first two arguments are the benchmarks' figures."""
    bandwidth = f"ib_write_bw {' '.join(BANDWIDTH)} in simulated time; {CARDS}"
    latencies = f"ib_write_lat {' '.join(LATENCY)} in simulated time; {CARDS}"
    same = f"ib_write_bw {' '.join(BRIEF)} with {LOSS} of all frames lost, twice with seed {SEED}; {CARDS}"
    (figures, lost, again), (other, *_) = lossy
    return [
        Row("serve_write_bw_gbps", "Gb/s", rate, conditions=bandwidth),
        Row("serve_write_bw_of_bench", "of write_payload_gbps", rate / gbps, **NEAR, conditions=bandwidth),
        Row("serve_write_lat_us", "µs", taken, conditions=latencies),
        Row("serve_write_lat_of_bench", "of post_send_to_receiver_completion_ns", taken / microseconds, **NEAR,
            conditions=latencies),
        Row("serve_figures_that_differ", "", float(figures != other), at_most=0, conditions=same),
        Row("serve_packets_lost", "packets", lost, at_least=1, conditions=same),
        Row("serve_packets_lost_not_retransmitted", "packets", abs(lost - again), at_most=0, conditions=same),
    ]


def served(backend, loss, *programs):
    """Run programs in one session; return their figures, and host a's lost and retransmitted packets."""
    figures = []
    with serving("--backend", backend, "--time", "sim", "--preset", "test", "--delay-us", "0", "--loss", loss,
                 "--seed", SEED) as session:
        for number, (name, *options) in enumerate(programs):
            status, figure, output = one(session, program(name, options), PORT + number)
            assert status == PASSED, output
            figures.append(figure)
        lost, again = _LAST.search(session.end()).groups()
    return figures, int(lost), int(again)


def program(name, options):
    """Return a program of perftest from the table of programs, with further options."""
    found = next(program for program in TABLE if program.name == name)
    return replace(found, options=(*found.options, *options))
