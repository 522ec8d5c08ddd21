"""Fuzzing the RTL: starts the simulator with :mod:`~weft.tb.verify.fuzz.rtl_cases`."""

import json

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text
from weft.tb.verify.fuzz import rtl_cases

PRESET = "test"


def fuzz_rtl(frames, *, seed=None, timeout_s=3600, **environment):
    """Frames for two real cards; ``{"frames", "kinds", "drops"}`` of :mod:`~weft.tb.verify.fuzz.rtl_cases`.

    Raises
    ------
    AssertionError
        If anything went wrong, with the command that repeats it.
    """
    run = simulate(verilog=two_cards_text(preset(PRESET)), top=TOP, name=f"two-cards-{PRESET}", sim="verilator",
                   optimize="run", cases=rtl_cases.__file__, seed=seed, timeout_s=timeout_s,
                   env={"WEFT_FUZZ_FRAMES": str(frames), **environment})
    return json.loads((run / "fuzz.json").read_text())
