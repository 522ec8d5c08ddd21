"""Where a signal changes its clock on the board: all of it, by name, and what a vendor's tools are to do about it."""

from dataclasses import dataclass
from enum import Enum

PERIODS_NS = {"sync": 4.0, "mac": 3.103, "init": 10.0}


class Kind(Enum):
    GRAY = "pointer in Gray code: bits may arrive at different times, but less than a cycle apart"
    LEVEL = "single bits, each of which stands long enough"
    HELD = "a bus that stands still while it is read: a synchronised bit says when"
    RESET = "reset that comes at once and goes with the clock"
    STATIC = "set by hand while the block that reads it is in reset"


@dataclass(frozen=True)
class Crossing:
    """``source`` and ``sink`` are registers, or ``block.port``; a path of instances, parted by ``/``."""

    kind: Kind
    source: str
    sink: str
    write: str | None       # clock of the source; None: none, or unknown
    read: str

    def constraints(self):
        """Lines of XDC."""
        cells = {end: f"[get_cells -hierarchical -filter {{NAME =~ {getattr(self, end)}_reg*}}]"
                 for end in ("source", "sink") if "." not in getattr(self, end)}
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
    resets = {"sync": "card_release/rst", "mac": "mac_release/rst"}
    for fifo in (f"{path}/{name}" for name in fifos):
        yield Crossing(Kind.GRAY, f"{fifo}/produce_w_gry", f"{fifo}/produce_cdc/stage0", write, read)
        yield Crossing(Kind.GRAY, f"{fifo}/consume_r_gry", f"{fifo}/consume_cdc/stage0", read, write)
        yield Crossing(Kind.RESET, f"{path}/empty_fifos", f"{fifo}/rst_cdc/stage0", write, read)
    yield Crossing(Kind.LEVEL, resets[read], f"{path}/reader_reset_cdc/stage0", read, write)
    yield Crossing(Kind.LEVEL, resets[write], f"{path}/writer_reset_cdc/stage0", write, read)


CROSSINGS = (
    *_frames("mac_side/tx", "sync", "mac", ("beats", "ends")),
    *_frames("mac_side/rx", "mac", "sync", ("beats",)),
    Crossing(Kind.LEVEL, "mac_side/levels_q", "mac_side/status_cdc/stage0", "mac", "sync"),
    Crossing(Kind.LEVEL, "mac_side/tx_enable", "mac_side/enable_cdc/stage0", "mac", "sync"),
    Crossing(Kind.LEVEL, "mac_side/dropped_toggle", "mac_side/dropped_cdc/stage0", "sync", "mac"),
    Crossing(Kind.LEVEL, "mac_side/asked_toggle", "mac_side/asked_cdc/stage0", "sync", "mac"),
    Crossing(Kind.LEVEL, "mac_side/known", "mac_side/told_cdc/stage0", "mac", "sync"),
    Crossing(Kind.HELD, "mac_side/address", "mac_side/address_mac", "sync", "mac"),
    Crossing(Kind.HELD, "mac_side/held", "mac_side/counter_data", "mac", "sync"),
    Crossing(Kind.LEVEL, "cmac.gt_powergoodout", "power_good_cdc/stage0", None, "sync"),
    Crossing(Kind.LEVEL, "pcie.user_lnk_up", "link_up_cdc/stage0", None, "sync"),
    Crossing(Kind.RESET, "pcie.user_reset", "card_release/release/stage0", "sync", "sync"),
    Crossing(Kind.RESET, "cmac.usr_tx_reset", "mac_release/release/stage0", "mac", "mac"),
    Crossing(Kind.RESET, "cmac.usr_rx_reset", "mac_release/release/stage0", "mac", "mac"),
    Crossing(Kind.RESET, "registers/mac_reset", "init_release/release/stage0", "sync", "init"),
    Crossing(Kind.STATIC, "registers/loopback", "cmac.gt_loopback_in", "sync", "mac"),
    Crossing(Kind.STATIC, "init_release/rst", "cmac.sys_reset", "init", "mac"),
)
