"""Clock-domain crossings of the card, by name, and their constraints for a vendor's tools."""

from dataclasses import dataclass
from enum import Enum

PERIODS_NS = {"sync": 4.0, "mac": 3.103, "init": 10.0}


class Kind(Enum):
    GRAY = "pointer in Gray code: bits may arrive at different times, but less than a cycle apart"
    LEVEL = "single bits, each of which is stable long enough"
    HELD = "a bus that is stable while it is read: a synchronised bit is its enable"
    RESET = "reset with asynchronous assertion and synchronous release"
    STATIC = "set by software while the block that reads it is in reset"


@dataclass(frozen=True)
class Crossing:
    """A crossing: ``source`` and ``sink`` are registers, ports, or ``block.port``; paths of instances use ``/``."""

    kind: Kind
    source: str
    sink: str
    write: str | None       # clock of the source; None: none, or unknown
    read: str

    def constraints(self):
        """Return lines of XDC."""
        cells = {end: f"[get_cells -hierarchical -filter {{NAME =~ {getattr(self, end)}_reg*}}]"
                 for end in ("source", "sink") if "." not in getattr(self, end) and "/" in getattr(self, end)}
        if self.kind is Kind.STATIC or "source" not in cells and self.kind is not Kind.RESET:
            ends = f"-to {cells['sink']}" if "sink" in cells else f"-from {cells['source']}"
            return [f"set_false_path {ends}", *self._async_reg()]
        if self.kind is Kind.RESET:
            return [f"set_false_path -to [get_pins -hierarchical -filter {{NAME =~ {self._chain()}_reg*/PRE}}]",
                    *self._async_reg()]
        limit = min(PERIODS_NS[self.write], PERIODS_NS[self.read])
        ends = f"-from {cells['source']} -to {cells['sink']}"
        lines = [f"set_max_delay -datapath_only {ends} {limit}"]
        if self.kind in (Kind.GRAY, Kind.HELD):
            lines.append(f"set_bus_skew {ends} {limit}")
        return lines + self._async_reg()

    def _chain(self):
        return self.sink.removesuffix("0") + "*"

    def _async_reg(self):
        if self.kind in (Kind.HELD, Kind.STATIC):
            return []
        return [f"set_property ASYNC_REG TRUE [get_cells -hierarchical -filter {{NAME =~ {self._chain()}_reg*}}]"]


def _frames(path, write, read, fifos):
    """Generate the crossings of a :class:`~weft.hdl.mac.frame_crossing.FrameCrossing`."""
    for fifo in (f"{path}/{name}" for name in fifos):
        yield Crossing(Kind.GRAY, f"{fifo}/produce_w_gry", f"{fifo}/produce_cdc/stage0", write, read)
        yield Crossing(Kind.GRAY, f"{fifo}/consume_r_gry", f"{fifo}/consume_cdc/stage0", read, write)
        yield Crossing(Kind.RESET, f"{path}/empty_fifos", f"{fifo}/rst_cdc/stage0", write, read)
    yield Crossing(Kind.LEVEL, f"{read}_release/rst", f"{path}/reader_reset_cdc/stage0", read, write)
    yield Crossing(Kind.LEVEL, f"{write}_release/rst", f"{path}/writer_reset_cdc/stage0", write, read)


# Of a card with ``CardParams.mac_clock``.
CARD_CROSSINGS = (
    *_frames("transmit/buffer/crossing", "sync", "mac", ("beats", "ends")),
    *_frames("mac_rx/crossing", "mac", "sync", ("beats",)),
    Crossing(Kind.LEVEL, "mac_up", "transmit/buffer/up_cdc/stage0", "mac", "sync"),
    Crossing(Kind.LEVEL, "transmit/buffer/holding", "transmit/buffer/hold_cdc/stage0", "sync", "mac"),
    Crossing(Kind.LEVEL, "transmit/buffer/paused", "transmit/buffer/paused_cdc/stage0", "sync", "mac"),
    Crossing(Kind.LEVEL, "transmit/buffer/held", "transmit/buffer/held_cdc/stage0", "mac", "sync"),
    Crossing(Kind.LEVEL, "transmit/buffer/mac_stalled", "transmit/buffer/stalled_cdc/stage0", "mac", "sync"),
    Crossing(Kind.LEVEL, "transmit/buffer/dropped_toggle", "transmit/buffer/dropped_cdc/stage0", "sync", "mac"),
    Crossing(Kind.LEVEL, "pause_crossing/request", "pause_crossing/request_cdc/stage0", "sync", "mac"),
    Crossing(Kind.LEVEL, "pause_crossing/done", "pause_crossing/done_cdc/stage0", "mac", "sync"),
    Crossing(Kind.HELD, "pause_crossing/request_data", "pause_crossing/to_send", "sync", "mac"),
    Crossing(Kind.RESET, "rst", "sync_release/release/stage0", None, "sync"),
    Crossing(Kind.RESET, "mac_rst", "mac_release/release/stage0", None, "mac"),
)


def crossings_xdc(crossings=CARD_CROSSINGS):
    """Return the XDC of all crossings, to be read after synthesis, when registers have their names."""
    lines = ["# Clock-domain crossings. report_cdc must find no other path."]
    seen = set()
    for crossing in crossings:
        lines += ["", f"# {crossing.source} -> {crossing.sink}: {crossing.kind.value}"]
        lines += [line for line in crossing.constraints() if line not in seen]
        seen.update(crossing.constraints())
    return "\n".join(lines) + "\n"
