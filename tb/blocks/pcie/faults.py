"""Faults at the PCIe room, by number: starts the simulator with ``fault_cases``."""

import json
from pathlib import Path

from weft.tb.blocks.pcie.endpoint_room import pcie_room
from weft.tb.flow.simulate import simulate


def inject(count, *, seed=None, **environment):
    """What :mod:`~weft.tb.blocks.pcie.fault_cases` counted when so many faults, and a few more, were injected:
    ``injected`` by kind, ``failures`` by kind, ``errors`` that the card told, ``rounds``."""
    run = simulate(pcie_room(), name="pcie_room", cases=Path(__file__).with_name("fault_cases.py"), sim="verilator",
                   seed=seed, timeout_s=1800, env={"WEFT_FAULTS": str(count), **environment})
    return json.loads((run / "faults.json").read_text())
