"""Driver and card events of a run as a Chrome trace, which Perfetto (https://ui.perfetto.dev) opens.

Its event sources are common to gateware and models: the driver's device, the host's memory, and the link.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.driver.device.device import Device
from weft.driver.verbs.context import Context
from weft.hdl.contract import abi, wire
from weft.model.impairments import Deliveries, Frame, Impairments

REGISTER_AT = {register.offset: register.name for register in abi.REGISTERS}
VECTORS = {vector: ring.name for ring, vector in abi.VECTOR.items()}
DRIVER, CARD, LINE = "driver", "card to memory", "line"
BITS_PER_NS = 100
PREAMBLE_BYTES = 8


class Timeline:
    """Collector of events in simulated time.

    ``now`` returns simulated nanoseconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.events: list[dict[str, Any]] = []      # of the Trace Event Format: `X` has a duration, `i` has none
        self._tracks: dict[str, tuple[int, dict[str, int]]] = {}

    def add(self, process: str, track: str, name: str, at_ns: float, length_ns: float | None = None,
            **facts: Any) -> None:
        """Add an event; with a length it is drawn as a bar."""
        number, thread = self._place(process, track)
        event = {"name": name, "ph": "i" if length_ns is None else "X", "ts": at_ns / 1000, "pid": number,
                 "tid": thread, "args": facts}
        event |= {"s": "t"} if length_ns is None else {"dur": length_ns / 1000}
        self.events.append(event)

    def _place(self, process: str, track: str) -> tuple[int, int]:
        if process not in self._tracks:
            self._tracks[process] = (len(self._tracks) + 1, {})
            self.events.append({"name": "process_name", "ph": "M", "pid": self._tracks[process][0], "tid": 0,
                                "args": {"name": process}})
        number, threads = self._tracks[process]
        if track not in threads:
            threads[track] = len(threads) + 1
            self.events.append({"name": "thread_name", "ph": "M", "pid": number, "tid": threads[track],
                                "args": {"name": track}})
        return number, threads[track]

    def watch_host(self, side: str, device: Device, dma_taps: list[Callable[[int, bytes], None]],
                   context: Context) -> None:
        """Record a host: the accesses of its driver to the device, and the memory writes of its card."""
        host = f"host {side}"
        observed = {name: self._access(host, name, getattr(device, name))
                    for name in ("write32", "write64", "read32", "read64")}
        for name, function in (observed | {"wait": self._waiting(host, device.wait)}).items():
            setattr(device, name, function)
        rings = [(ring, context.rings[ring].buffer.physical(0), context.rings[ring].depth)
                 for ring in abi.CARD_TO_HOST]

        def written(address: int, data: bytes) -> None:
            at = self._now()
            for ring, base, depth in rings:
                if base <= address < base + depth * abi.BLOCK_BYTES:
                    for start in range(0, len(data), abi.BLOCK_BYTES):     # one write may hold several entries
                        self.add(host, CARD, _entry_name(ring, data[start:]), at, ring=ring.name,
                                 slot=(address + start - base) // abi.BLOCK_BYTES)
                    return
            self.add(host, CARD, "write", at, address=hex(address), bytes=len(data))

        dma_taps.append(written)

    def interrupt(self, side: str, vector: int) -> None:
        """Record an interrupt at a host."""
        self.add(f"host {side}", DRIVER, f"interrupt {VECTORS.get(vector, vector)}", self._now(), vector=vector)

    def watch_link(self, name: str, impairments: Impairments) -> None:
        """Record a direction of the link: each frame from its first byte on the line to its arrival or loss."""
        decide = impairments.outcome

        def outcome(frame: Frame, time_ns: float) -> Deliveries:
            frame, deliveries = bytes(frame), decide(frame, time_ns)
            subject, facts = _frame_name(frame)
            begin = time_ns - (PREAMBLE_BYTES + len(frame)) * 8 / BITS_PER_NS
            self.add(f"link {name}", LINE, subject, begin, time_ns - begin, bytes=len(frame), **facts)
            if not deliveries:
                self.add(f"link {name}", "lost", subject, time_ns, **facts)
            for at, _ in deliveries:
                self.add(f"link {name}", "arrived", subject, at, **facts)
            return deliveries

        impairments.outcome = outcome     # type: ignore[method-assign]

    def _access(self, host: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def access(offset: int, *value: int) -> Any:
            at = self._now()
            found = function(offset, *value)
            register = REGISTER_AT.get(offset, hex(offset))
            self.add(host, DRIVER, f"{name[:-2]} {register}", at, max(self._now() - at, 1),
                     value=hex(value[0] if value else found))
            return found
        return access

    def _waiting(self, host: str, function: Callable[[int], bool]) -> Callable[[int], bool]:
        def wait(timeout_ns: int) -> bool:
            at = self._now()
            woken = function(timeout_ns)
            self.add(host, DRIVER, "wait", at, self._now() - at, timeout_ns=timeout_ns, interrupt=bool(woken))
            return woken
        return wait

    def write(self, path: Path) -> None:
        """Write the trace file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"traceEvents": self.events, "displayTimeUnit": "ns"}) + "\n")


def _entry_name(ring: abi.Ring, data: bytes) -> str:
    if ring is not abi.Ring.META_REPORT:
        return ring.name
    kind = abi.REPORT_EVENT.unpack(data).kind
    return f"report {getattr(kind, 'name', kind)}"


def _frame_name(frame: bytes) -> tuple[str, dict[str, Any]]:
    """Return the name of a frame, and a dict of its most important fields."""
    if len(frame) < wire.BTH_OFFSET + wire.BTH.size_bytes or wire.ETH.unpack(frame).ethertype != wire.ETHERTYPE_IPV4:
        return "raw frame", {}
    bth = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    name = bth.opcode.name if isinstance(bth.opcode, wire.Opcode) else f"opcode {bth.opcode:#x}"
    return name, {"psn": bth.psn, "qp": bth.dest_qp, "ack_req": bth.ack_req}
