"""Build of a simulator for a component, and run of cocotb tests in it.

:func:`simulate` is the entry point: component (or Verilog text) → Verilog → simulator → bench → verdict. Builds are
cached by content, so that a second run builds nothing.
"""

import os
from dataclasses import replace

from weft.tb.sim.flow import simulators
from weft.tb.sim.flow.build import BUILD_ROOT, build, elaborate, locked
from weft.tb.sim.flow.run import Bench, bench_seed, run_folder, run_name, run_tests
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.simulators import SIMULATORS, MissingTool
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.sim.flow.verilog_text import top_ports

__all__ = ["BUILD_ROOT", "SIMULATORS", "MissingTool", "bench_seed", "build", "elaborate", "locked", "simulate",
           "top_ports", "waves_wanted"]

YES, NO = ("1", "yes", "true"), ("", "0", "no", "false")


def waves_wanted():
    """Return the value of ``WAVES`` in the environment; raise ``ValueError`` if it is neither yes nor no."""
    text = os.environ.get("WAVES", "").strip().lower()
    if text not in YES + NO:
        raise ValueError(f"WAVES is {text!r}; it must be 1 or 0")
    return text in YES


def simulate(component=None, *, verilog=None, optimize="build", everything=False, **bench):
    """Run the cocotb tests of a file on a component; raise ``AssertionError`` unless all pass; return the run's folder.

    The flattened members of the component's signature, joined by ``__``, are the ports; ``clk`` and ``rst`` are added
    if it has registers. ``verilog`` is Verilog text instead of a component. For ``optimize`` and ``everything`` see
    :func:`build`, for ``bench`` the attributes of :class:`~weft.tb.sim.flow.run.Bench`.
    """
    bench = Bench(**bench)
    if os.environ.get("WEFT_RTL") == "0":
        raise AssertionError(f"{bench.name}: WEFT_RTL=0 forbids simulators; tb/test/tiers.py lists the tests that need "
                             "one")
    try:
        simulators.tool(bench.sim).check()
    except MissingTool as missing:
        if os.environ.get("PYTEST_CURRENT_TEST") and not tools_expected():
            import pytest
            pytest.skip(str(missing))
        raise AssertionError(str(missing)) from None
    bench = replace(bench, waves=bench.waves or waves_wanted(), seed=drawn_seed() if bench.seed is None else bench.seed)
    where = build(verilog or elaborate(component, bench.top), top=bench.top, name=bench.name, sim=bench.sim,
                  waves=bench.waves, optimize=optimize, everything=everything)
    with run_folder(where, run_name(bench.cases)) as run:
        run_tests(where, run, bench)
    return run
