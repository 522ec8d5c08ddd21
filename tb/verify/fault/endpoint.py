"""Faults at the PCIe room, by number: starts the simulator with ``fault_cases``."""

import json
from pathlib import Path

from weft.tb.sim.block.pcie.endpoint_room import run_room


def inject(count, *, seed=None, straddle=False, **environment):
    """What :mod:`~weft.tb.verify.fault.endpoint_cases` counted when so many faults, and a few more, were injected:
    ``injected`` by kind, ``failures`` by kind, ``errors`` that the card told, ``rounds``."""
    run = run_room(Path(__file__).with_name("endpoint_cases.py"), straddle=straddle, sim="verilator", seed=seed,
                   timeout_s=1800, env={"WEFT_FAULTS": str(count), **environment})
    return json.loads((run / "faults.json").read_text())
