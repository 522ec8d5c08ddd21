"""Faults of a PCIe host by the ten thousand, before the card's PCIe room in RTL: what was lost, wrong or left hanging.

A row for each kind of fault says how many there were.
"""

from collections import Counter

from weft.tb.blocks.pcie.faults import inject
from weft.tb.measure.benchmark import Row

FAULTS, RUNS = 10_000, 2


def measure(progress):
    """The rows."""
    runs = [inject(FAULTS // RUNS, seed=seed, WEFT_PROGRESS=str(progress)) for seed in range(1, RUNS + 1)]
    injected = sum((Counter(run["injected"]) for run in runs), Counter())
    failures = sum((Counter(run["failures"]) for run in runs), Counter())
    return [Row("pcie_faults_injected", "", injected.total(), at_least=FAULTS),
            Row("pcie_fault_failures", "", failures.total(), at_most=0),
            Row("pcie_fault_errors_told", "", sum(run["errors"] for run in runs)),
            *(Row(f"pcie_faults_{kind.replace(' ', '_')}", "", count, at_least=1)
              for kind, count in sorted(injected.items()))]
