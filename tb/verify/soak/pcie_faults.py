"""Faults of a PCIe host in large numbers: losses, errors and hangs that they cause.

Most faults are injected into the card's PCIe subsystem in RTL; those that need a driver, into two cards. A row for each
kind of fault has its count.
"""

import random
import sys
from collections import Counter

from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.verify.fault.endpoint_cases import inject
from weft.tb.verify.soak.bins import AREAS, OUTAGES
from weft.tb.verify.soak.plan import TURNS
from weft.tb.verify.soak.run_cases import run

FAULTS, RUNS = 10_000, 2
CARD_RUNS = (("PCIe faults",),) * 4 + tuple((outage,) for outage in OUTAGES)
CARD_CYCLES = 100_000
BUSY = TURNS.index("few")           # first seed with many busy lanes, and with losses
OF_CARDS = (*OUTAGES, *(f"{how} {area}" for area in AREAS for how in ("damaged", "unreadable")))
OF_READS = "PCIe fault, "


def cards(progress):
    """Run two cards under their drivers; return (Counter of faults by name, number of failures)."""
    injected, failures, first = Counter(), 0, random.SystemRandom().randrange(1 << 28)
    for number, hazards in enumerate(CARD_RUNS):
        report_progress(progress, f"two cards, {hazards[0]}", number, len(CARD_RUNS))
        found = run((first + number) * len(TURNS) + BUSY, CARD_CYCLES, hazards)
        if "failed" in found:
            failures += 1
            print(found["failed"], file=sys.stderr)
        else:
            injected.update({name.removeprefix(OF_READS): n for name, n in found["met"].items()
                             if name in OF_CARDS or name.startswith(OF_READS)})
    return injected, failures


def measure(progress):
    runs = [inject(FAULTS // RUNS, seed=seed, progress=progress) for seed in range(1, RUNS + 1)]
    injected = sum((Counter(run["injected"]) for run in runs), Counter())
    failures = sum((Counter(run["failures"]) for run in runs), Counter())
    of_cards, failed = cards(progress)
    total = injected + of_cards
    return [Row("pcie_faults_injected", "", total.total(), at_least=FAULTS),
            Row("pcie_fault_failures", "", failures.total() + failed, at_most=0),
            Row("pcie_fault_errors_reported", "", sum(run["errors"] for run in runs)),
            Row("pcie_faults_before_two_cards", "", of_cards.total()),
            *(Row(f"pcie_faults_{kind.replace(' ', '_')}", "", total[kind], at_least=1)
              for kind in sorted({*injected, *of_cards, *OF_CARDS}))]
