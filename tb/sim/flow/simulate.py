"""Build a simulator for a component and run cocotb tests in it.

:func:`simulate` is the one entry: component (or ready Verilog) → Verilog → simulator → bench → verdict. What it
builds is kept by content, so a second run builds nothing.
"""

import os

from weft.tb.sim.flow import simulators
from weft.tb.sim.flow.build import BUILD_ROOT, build, elaborate, locked
from weft.tb.sim.flow.run import bench_seed, run_folder, run_name, run_tests
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.simulators import SIMULATORS, MissingSimulator
from weft.tb.sim.flow.system import tools_expected
from weft.tb.sim.flow.verilog_text import top_ports

__all__ = ["BUILD_ROOT", "SIMULATORS", "MissingSimulator", "bench_seed", "build", "elaborate", "locked", "simulate",
           "top_ports", "waves_wanted"]

YES, NO = ("1", "yes", "true"), ("", "0", "no", "false")


def waves_wanted():
    """What ``WAVES`` in the environment says.

    Raises
    ------
    ValueError
        With a sentence, if it is neither yes nor no.
    """
    text = os.environ.get("WAVES", "").strip().lower()
    if text not in YES + NO:
        raise ValueError(f"WAVES is {text!r}; it must be 1 or 0")
    return text in YES


def simulate(component=None, *, name, cases, sim="icarus", seed=None, env=None, waves=False, verilog=None, top=None,
             tests=None, optimize="build", everything=False, live=False, timeout_s=900):
    """Run the cocotb tests of file ``cases`` on a component; raise ``AssertionError`` unless all pass.

    Parameters
    ----------
    component : wiring.Component, optional
        What is simulated. Its signature's members, flattened with ``__``, are the ports; ``clk`` and ``rst`` are
        added if it has registers.
    verilog, top : str, optional
        Verilog text and the name of its top module, instead of ``component``.
    name : str
        Names the build folder.
    cases : path
        File with the ``@cocotb.test()`` coroutines; ``__file__`` where they stand beside the pytest test.
    sim : str
        ``"icarus"`` or ``"verilator"``.
    seed : int, optional
        Otherwise ``WEFT_SEED`` of the environment, otherwise a fresh one; see :func:`bench_seed`.
    env : dict, optional
        More environment for the bench.
    waves : bool
        Record waves (also by ``WAVES=1`` in the environment) into ``waves.fst`` or ``waves.vcd`` of the run folder.
    tests : str, optional
        Regular expression: only these tests of the bench.
    optimize, everything
        See :func:`build`.
    live : bool
        Show the bench's log while it runs.
    timeout_s : float
        Wall-clock limit of the simulation.

    Returns
    -------
    Path
        The run's folder.
    """
    if os.environ.get("WEFT_RTL") == "0":
        raise AssertionError(f"{name}: WEFT_RTL=0 forbids simulators; tb/test/tiers.py lists the tests that need one")
    try:
        simulators.tool(sim).check()
    except MissingSimulator as missing:
        if os.environ.get("PYTEST_CURRENT_TEST") and not tools_expected():
            import pytest
            pytest.skip(str(missing))
        raise AssertionError(str(missing)) from None
    waves = waves or waves_wanted()
    if seed is None:
        seed = drawn_seed()
    if verilog is None:
        top = top or "top"
        verilog = elaborate(component, top)
    where = build(verilog, top=top, name=name, sim=sim, waves=waves, optimize=optimize, everything=everything)
    with run_folder(where, run_name(cases)) as run:
        run_tests(where, run, name=name, top=top, cases=cases, sim=sim, seed=seed, env=env, waves=waves, tests=tests,
                  live=live, timeout_s=timeout_s)
    return run
