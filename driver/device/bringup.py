"""Reset, configuration, start and stop of a card by registers."""

from typing import Protocol

from .capabilities import Capabilities, read_register, write_register
from .device import Device
from .health import ALL_ONES, CONTROL_ENABLE, GONE, DeviceFatal

CONTROL_RESET = 2
STATUS_IDLE, STATUS_RESET_DONE = 1, 2
RESET_TIMEOUT_NS = 100_000_000     # a card waits up to 67 ms for completions of a host that disabled bus mastering
RESET_POLL_NS = 1_000


class CardSettings(Protocol):
    """Settings that a :class:`~weft.driver.verbs.config.ContextConfig` has for the registers of a card."""

    reorder_distance: int
    retransmit_slack: int
    node_age_ns: int
    prefetch_depth: int
    prefetch_watermark: int
    cnp_interval_ns: int

    @property
    def pfc_word(self) -> int: ...


def reset_card(device: Device) -> None:
    """Reset everything except the PCIe subsystem and the registers.

    Raises
    ------
    TimeoutError
    DeviceFatal
        If the card is not present any more.
    """
    write_register(device, "control", CONTROL_RESET)
    write_register(device, "control", 0)
    status = _wait_for(device, STATUS_RESET_DONE)
    if not status & STATUS_RESET_DONE:
        raise TimeoutError("the card does not come out of reset")
    if status == ALL_ONES:
        raise DeviceFatal(GONE)


def _wait_for(device: Device, bit: int) -> int:
    """Wait for a bit of the register ``status``, at most :data:`RESET_TIMEOUT_NS`; return the register."""
    deadline, late = device.now_ns() + RESET_TIMEOUT_NS, False
    while not (status := read_register(device, "status")) & bit and not late:
        device.wait(RESET_POLL_NS)
        late = device.now_ns() > deadline       # before the last look: in between, the process may stand still
    return status


def set_registers(device: Device, config: CardSettings, capabilities: Capabilities, *, status_block: int) -> None:
    """Write the card settings of a ContextConfig, and the physical address of the status block."""
    depth = max(1, min(config.prefetch_depth, capabilities.max_prefetch_depth or config.prefetch_depth))
    for name, value in (
        ("status_block", status_block),
        ("reorder_distance", config.reorder_distance),
        ("retransmit_slack", config.retransmit_slack),
        ("node_age_ns", config.node_age_ns),
        ("prefetch_depth", depth),
        ("prefetch_watermark", min(config.prefetch_watermark, depth)),
        ("pfc", config.pfc_word),
        ("cnp_interval_ns", config.cnp_interval_ns),
    ):
        write_register(device, name, value)


def come_to_rest(device: Device) -> None:
    """Wait until a disabled card, with disabled rings and without a status block, does not access memory any more.

    A card that does not become idle is reset.

    Raises
    ------
    TimeoutError
        If it does not come out of reset either.
    """
    if not _wait_for(device, STATUS_IDLE) & STATUS_IDLE:
        reset_card(device)


def enable_card(device: Device) -> None:
    write_register(device, "control", CONTROL_ENABLE)


def disable_card(device: Device) -> None:
    write_register(device, "control", 0)
