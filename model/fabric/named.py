"""Fabrics by name, by name and number, or from a TOML file."""

import re
from dataclasses import replace
from pathlib import Path

from ..settings import BadSettings
from .description import Fabric
from .toml_file import read
from .topologies import TOPOLOGIES, Shape

FLOWS_MAX = 199
NAMES = ", ".join(TOPOLOGIES)
WAN = Shape(rtts_us=(10_000.0,), bottleneck_gbps=40.0)
_NUMBERED = re.compile(rf"({'|'.join(sorted(TOPOLOGIES, key=len, reverse=True))})(?:-([1-9]\d{{0,2}}))?", re.ASCII)
_VICTIMS = {"incast", "incast-uplink"}


def is_topology(name: str) -> bool:
    """Return whether this is the name of a topology, with or without a number of flows."""
    return _NUMBERED.fullmatch(name) is not None


def named(name: str, shape: Shape) -> Fabric:
    """Return the topology of a name: ``dumbbell``, or with its number of flows: ``dumbbell-4``.

    With a number, an incast has as many senders, and no victim: ``incast-3`` has three senders and one receiver.

    Raises
    ------
    BadSettings
    """
    found = _NUMBERED.fullmatch(name)
    if found is None or int(found[2] or 1) > FLOWS_MAX:
        raise BadSettings(f"{name!r} is no fabric; choose one of {NAMES}, with -N for N flows, up to {FLOWS_MAX}, or a "
                          "file *.toml")
    kind, number = found[1], int(found[2] or 0)
    if not number:
        return TOPOLOGIES[kind](shape)
    if kind in _VICTIMS:
        return _without_victim(TOPOLOGIES[kind](replace(shape, flows=number + 1)))
    return TOPOLOGIES[kind](replace(shape, flows=number))


def of_cards(text: str, *, rtt_us: float | None = None, loss: float = 0.0) -> Fabric:
    """Return the fabric between cards: a file ``*.toml``, or a topology.

    Parameters
    ----------
    text
        A topology without a number has two flows, ``pair`` one.
    rtt_us
        Round trip time of a topology without transmission, in microseconds; None: 10 µs, and 10 ms with ``wan``.
    loss
        Chance of a loss on its bottleneck, in each direction.

    Raises
    ------
    BadSettings
    """
    if text.endswith(".toml"):
        return read(Path(text))
    shape = replace(WAN if text.startswith("wan") else Shape(), flows=1 if text == "pair" else 2, loss=loss)
    return named(text, shape if rtt_us is None else replace(shape, rtts_us=(rtt_us,)))


def _without_victim(fabric: Fabric) -> Fabric:
    """Return an incast without its last flow, and without the hosts of that."""
    victim = fabric.flows[-1]
    gone = {victim.source, victim.destination}
    return replace(fabric, hosts=tuple(host for host in fabric.hosts if host not in gone), flows=fabric.flows[:-1],
                   links=tuple(link for link in fabric.links if not {link.a, link.b} & gone))
