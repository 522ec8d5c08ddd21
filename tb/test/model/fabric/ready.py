"""The engine's machine code, compiled once by the first process that needs it; and small runs."""

import functools

from weft.model.fabric import engine, result
from weft.model.fabric.description import Fabric, FabricLink, Flow, Switch
from weft.model.fabric.state import make
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.tools import locked

CONFIG = {"packet_bytes": 4178, "control_bytes": 90, "ack_every": 4, "cnp_interval": 50e3, "time_out": 1e6, "repath": 1}


@functools.cache
def compile_engine():
    """Compile, or wait for the process that does: about half a minute of processor time, nothing if it is cached."""
    with locked(BUILD_ROOT / ".locks/fabric"):
        result.compile_engine()


def start(fabric, algorithm="none", seed=1, tuning=None, **config):
    """Return the state of a fabric before its first event."""
    return make(fabric, algorithm, CONFIG | config, seed, tuning or {})


def advance(w, until_us):
    """Run up to a time in microseconds."""
    engine.run(w, until_us * 1e3)
    assert not w.s["overflow"]


def line(*, flow=None, **link):
    """Return two hosts with one switch; ``link`` has properties of the second link, ``flow`` those of the flow."""
    return Fabric(("a", "b"), (Switch(name="s"),),
                  (FabricLink(a="a", b="s"), FabricLink(a="s", b="b", **link)),
                  (Flow(source="a", destination="b", **(flow or {})),), ("s", "b"))
