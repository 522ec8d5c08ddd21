"""Counters of a fabric: as an object that JSON can represent, and as sentences."""

from collections.abc import Iterator
from typing import Any

from .fabric import FrameFabric
from .port import CONTROL, DATA

OTHERS = "other paths"


def report(fabric: FrameFabric) -> dict[str, Any]:
    """Return the counters of all ports, switches and paths, by names of nodes.

    ``ports`` has those of :class:`~weft.model.fabric.frame.port.PortCounters`, ``switches`` the packets without a path
    and the largest use of the buffer, and ``paths`` the delivered packets.
    """
    names = fabric.names
    return {
        "ports": {f"{names[port.node]} to {names[port.peer]}": port.counters.as_dict() for port in fabric.ports},
        "switches": {names[n]: {"no_path": fabric.no_path[n], "used_peak_bytes": fabric.used_peak[n]}
                     for n in range(len(fabric.description.hosts), len(names))},
        "paths": {" ".join(names[n] for n in path) or OTHERS: count for path, count in sorted(fabric.paths.items())},
        "destroyed": {kind.value: count for kind, count in sorted(fabric.destroyed.items())}}


def sentences(found: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence about each port of a report that sent or dropped packets, and about each switch and path."""
    for name, port in found["ports"].items():
        if port["sent"] or sum(port["dropped"].values()) or port["cut"]:
            yield (f"port {name}: {port['sent']} packets sent, {port['queued'][CONTROL]} of them control; "
                   f"{port['marked']} marked, {sum(port['dropped'].values())} dropped, {port['lost']} lost, "
                   f"{port['cut']} cut; longest queue {port['peak_bytes'][DATA] / 1024:.1f} KiB"
                   + f"; {port['unmarkable']} not marked, as their ECN field demands" * bool(port["unmarkable"])
                   + f"; {port['trimmed']} trimmed" * bool(port["trimmed"])
                   + f"; paused {port['pauses']} times" * bool(port["pauses"]))
    for name, switch in found["switches"].items():
        yield (f"switch {name}: at most {switch['used_peak_bytes'] / 1024:.1f} KiB of its buffer used, "
               f"{switch['no_path']} packets without a path")
    for name, count in found["paths"].items():
        yield f"path {name}: {count} packets delivered"
