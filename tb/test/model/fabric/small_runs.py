"""Small runs of a fabric, event by event or up to a time."""

from weft.model.fabric import engine
from weft.model.fabric.description import Fabric, FabricLink, Flow, Switch
from weft.model.fabric.state import make

CONFIG = {"packet_bytes": 4178, "control_bytes": 90, "ack_every": 4, "cnp_interval": 50e3, "time_out": 1e6, "repath": 1,
          "recovery": 0, "window": 1 << 60, "span": 1}


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
