"""Draw faults over the subsystems and run the tests of the faulty file against each.

Each run of a test is kept below ``sim_build/mutants`` by content: design, fault, code of the test, seed. An interrupted
campaign resumes at its position. After a change of a test, a mutant that another test detected keeps that verdict; a
survivor is run against the changed test alone.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version

from weft.tb.sim.flow.simulate import BUILD_ROOT, locked
from weft.tb.sim.flow.tools import write_whole
from weft.tb.verify.mutate import record, sources
from weft.tb.verify.mutate.equivalence import proven_equivalent
from weft.tb.verify.mutate.netlist import Mutation, Netlist, draw, netlist, write_faulty
from weft.tb.verify.mutate.subsystems import Target

KEPT = BUILD_ROOT / "mutants"
FLOW = 2                   # must be raised when the processing of a mutant changes
PROVER = 4                 # must be raised when the statement or method of the proof changes
SEEDS = (1, 2)             # a survivor has survived with each of them
LIMIT_FACTOR, LIMIT_S, SOUND_S = 3, 10, 900
LEAST_PER_SUBSYSTEM, LEAST_PER_TARGET = 6, 1


class BaselineFails(Exception):
    """The tests of a target fail on the sound netlist. The message contains the name of the test."""


@dataclass(frozen=True)
class Design:
    """Elaborated target: its netlist, the modules that get faults, and the simulations of its tests."""

    target: Target
    netlist: Netlist
    modules: tuple
    simulations: tuple

    @property
    def cells(self):
        return sum(self.netlist.parts[module].cells for module in self.modules)


@dataclass(frozen=True)
class Mutant:
    """Fault in a design."""

    design: Design
    mutation: Mutation

    @property
    def name(self):
        """Name in the file of survivors; stable while the module is largely unchanged."""
        target, fault = self.design.target, self.mutation
        control = "" if fault.ctrlbit is None else f" by {fault.ctrlbit}"
        part = self.design.netlist.parts[fault.module].likeness
        return (f"{target.subsystem}/{target.name} {part} {fault.module} {fault.cell}.{fault.port}[{fault.portbit}] "
                f"{fault.mode}{control}")


@dataclass(frozen=True)
class MutantOutcome:
    """Outcome of a mutant."""

    detected_by: str      # the test that detected the fault; empty if the mutant survived
    problem: str        # message of the test
    seconds: float      # processor time of all simulations


def designs(targets):
    """Return the :class:`Design` of each target."""
    tests = [test for target in targets for test in target.tests]
    gateware = _digest(*(file.read_bytes() for file in sorted((sources.ROOT / "hdl").rglob("*.py"))))
    modules = {test: sources.module_of(sources.ROOT / test.partition("::")[0]) for test in tests}
    keys = {test: _digest(gateware, sources.digest(modules[test]), version("amaranth")) for test in tests}
    kept = KEPT / "elaborated"
    with locked(kept / "lock"):
        if new := [test for test in tests if not record.is_recorded(test, kept, keys[test])]:
            record.record({test: keys[test] for test in new}, kept)
    return [_design(target, kept) for target in targets]


def _design(target, kept):
    simulations = tuple(record.recorded(test, kept) for test in target.tests)
    found = {s.rtlil: netlist(record.rtlil_of(s, kept), s.top, KEPT / "netlists") for s in simulations}
    if len({design.digest for design in found.values()}) > 1:
        raise record.NotRecorded(f"the tests of {target.subsystem}/{target.name} simulate different designs")
    design = found[simulations[0].rtlil]
    modules = tuple(name for name, part in design.parts.items() if part.file in target.files)
    return Design(target, design, modules, simulations)


def mutants(all_designs, count, seed):
    """Yield about ``count`` mutants, shared among subsystems, and within them among targets, by number of cells.

    The smallest subsystems and targets get a minimum number.
    """
    subsystems = {}
    for design in all_designs:
        subsystems.setdefault(design.target.subsystem, []).append(design)
    shares = share({subsystem: sum(d.cells for d in members) for subsystem, members in subsystems.items()}, count,
                   LEAST_PER_SUBSYSTEM)
    for subsystem, members in subsystems.items():
        inside = share({d.target.name: d.cells for d in members}, shares[subsystem], LEAST_PER_TARGET)
        for design in members:
            for mutation in draw(design.netlist, design.modules, inside[design.target.name], seed):
                yield Mutant(design, mutation)


def share(weights, count, least):
    """Return ``count`` divided by weight, each part at least ``least``; the sum may be slightly larger."""
    whole = sum(weights.values())
    return {name: max(least, round(count * weight / whole)) for name, weight in weights.items()}


def for_all(decide, chosen, jobs, report):
    """Return ``decide(mutant)`` of each mutant, in order; call ``report(mutant, answer)`` for each answer at once."""
    chosen, answers = list(chosen), {}
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(decide, mutant): place for place, mutant in enumerate(chosen)}
        try:
            for done in as_completed(waiting):
                answers[waiting[done]] = done.result()
                report(chosen[waiting[done]], done.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [answers[place] for place in range(len(chosen))]


def judge(mutant):
    """Return the :class:`MutantOutcome` of a mutant. A kept run that detected the fault decides without another run."""
    design, fault = mutant.design, mutant.mutation
    for seed in SEEDS:
        for run in Runs(design, fault, seed).kept():
            if run["problem"]:
                return MutantOutcome(run["test"], run["problem"], run["seconds"])
    seconds = 0
    for seed in SEEDS:
        runs = Runs(design, fault, seed).all(baseline(design, seed))
        seconds, last = seconds + sum(run["seconds"] for run in runs), runs[-1]
        if last["problem"]:
            break
    return MutantOutcome(last["test"] if last["problem"] else "", last["problem"], round(seconds, 1))


def proof(mutant):
    """Return the method by which a mutant is proven equivalent; empty if it is not proven."""
    key = _digest(str(PROVER), mutant.design.netlist.digest, mutant.mutation.options)
    kept, where = KEPT / "proofs" / f"{key}.json", KEPT / "work" / f"proofs-{key}"
    with locked(kept.with_suffix(".lock")):
        if not kept.exists():
            write_whole(kept, json.dumps(proven_equivalent(mutant.design.netlist, mutant.mutation, where)))
            shutil.rmtree(where, ignore_errors=True)
    return json.loads(kept.read_text())


def baseline(design, seed):
    """Return limits of processor time by test, from a run of the sound netlist; raise BaselineFails if a test fails."""
    sound = Runs(design, None, seed)
    runs = sound.all({simulation.test: SOUND_S for simulation in design.simulations})
    if runs[-1]["problem"]:
        raise BaselineFails(f"{runs[-1]['test']} fails with seed {seed} on the netlist without a fault, see "
                            f"{sound.where}: {runs[-1]['problem']}")
    return {run["test"]: LIMIT_FACTOR * run["seconds"] + LIMIT_S for run in runs}


class Runs:
    """Runs of the tests of a design with a fault, or without (None), for a seed.

    A run is a dict of ``test``, ``seconds`` and ``problem``. A file holds each, by everything that it depends on.
    """

    def __init__(self, design, mutation, seed):
        self.design, self.mutation, self.seed = design, mutation, seed
        key = _digest(str(FLOW), design.netlist.digest, mutation.options if mutation else "sound", str(seed))
        self.folder, self.where = KEPT / "runs" / key, KEPT / "work" / key
        self.files = {simulation.test: self.folder / f"{self._name(simulation)}.json"
                      for simulation in design.simulations}

    def _name(self, simulation):
        return _digest(simulation.test, str(simulation.env), sources.digest(simulation.module))

    def kept(self):
        """Return the runs that are kept, in the order of the tests."""
        return [json.loads(file.read_text()) for file in self.files.values() if file.exists()]

    def all(self, limits):
        """Return the runs, at most the last of which detects the fault; those that are not kept take place.

        ``limits`` has seconds of processor time by test.
        """
        with locked(self.folder / "lock"):
            runs = self.kept()
            missing = [s for s in self.design.simulations if not self.files[s.test].exists()]
            if missing and not any(run["problem"] for run in runs):
                added = _replay(self.design, self.mutation, self.where, self.seed, limits, missing)
                runs += added
                if self.mutation or not added[-1]["problem"]:   # failed baselines stay in their folder, to be looked at
                    for run in added:
                        write_whole(self.files[run["test"]], json.dumps(run))
                    shutil.rmtree(self.where, ignore_errors=True)
        return sorted(runs, key=lambda run: bool(run["problem"]))


def _replay(design, mutation, where, seed, limits, simulations):
    """Run :mod:`weft.tb.verify.mutate.replay` on the design with a fault, in a separate process; return its result."""
    where.mkdir(parents=True, exist_ok=True)
    job, verilog = where / "job.json", where / "design.v"
    if not verilog.exists():
        write_faulty(design.netlist, mutation, where, verilog.name)
    job.write_text(json.dumps({"verilog": str(verilog), "seed": seed, "limits": limits,
                               "simulations": [asdict(simulation) for simulation in simulations]}))
    environment = {**os.environ, "WEFT_BUILD": str(where)}
    environment.pop("PYTEST_CURRENT_TEST", None)
    done = subprocess.run([sys.executable, "-m", "weft.tb.verify.mutate.replay", str(job)], cwd=where, env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{design.target.name}: {mutation}\n{done.stdout}{done.stderr}")
    return json.loads(job.with_suffix(".out").read_text())


def _digest(*texts):
    joined = b"\0".join(text if isinstance(text, bytes) else text.encode() for text in texts)
    return hashlib.sha256(joined).hexdigest()[:16]
