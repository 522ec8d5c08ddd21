"""PCI function of the card: one description of its configuration space, for boards and for virtual cards.

Names, offsets and bits are those of the PCI Express Base Specification (chapter 7); the offsets of the capabilities are
those of the UltraScale+ hard block. Standard library only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import abi
from .layout import Field, Layout
from .params import CardParams

CONFIG_BYTES = 4096
POWER_MANAGEMENT, MSIX, EXPRESS, ERROR_REPORTING = 0x40, 0x60, 0x70, 0x100     # offsets of the capabilities
ID_POWER_MANAGEMENT, ID_MSIX, ID_EXPRESS, ID_ERROR_REPORTING = 0x01, 0x11, 0x10, 0x0001
CLASS_INFINIBAND = 0x02_07_00
BAR_OFFSET, BARS = 0x10, 6
MEMORY_64BIT, MEMORY_PREFETCHABLE = 4, 8      # type bits of a BAR
GEN3 = 3                                      # 8.0 GT/s
PAYLOAD_UNIT = 128                            # bytes that code 0 of a payload size stands for


def _bits(name: str, doc: str, size_bytes: int, *fields: tuple) -> Layout:
    return Layout(name, doc, [Field(*field) for field in fields], size_bytes=size_bytes)


HEADER = _bits(
    "type 0 header", "First 64 bytes of the configuration space; the BARs are packed separately.", 64,
    ("vendor_id", 16), ("device_id", 16),
    ("_io_space", 1), ("memory_space", 1), ("bus_master", 1), ("_special", 3), ("parity_response", 1), ("_r0", 1),
    ("serr_enable", 1), ("_r1", 1), ("interrupt_disable", 1), ("_r2", 5),
    ("_r3", 4), ("capabilities_list", 1), ("_r4", 3), ("master_data_parity_error", 1), ("_r5", 2),
    ("signaled_target_abort", 1), ("received_target_abort", 1), ("received_master_abort", 1),
    ("signaled_system_error", 1), ("detected_parity_error", 1),
    ("revision_id", 8), ("class_code", 24), ("cache_line_size", 8), ("_latency_timer", 8), ("_header_type", 8),
    ("_bist", 8), ("_bars", 32 * BARS), ("_cardbus", 32), ("subsystem_vendor_id", 16), ("subsystem_id", 16),
    ("_rom", 32),
    ("capabilities_pointer", 8), ("_r6", 56), ("interrupt_line", 8), ("_interrupt_pin", 8), ("_min_gnt", 8),
    ("_max_lat", 8))
POWER = _bits(
    "power management capability", "Only D0 and D3hot; no PME; no reset between them.", 8,
    ("id", 8), ("next", 8), ("version", 3), ("_pme", 13),
    ("power_state", 2), ("_r0", 1), ("no_soft_reset", 1), ("_r1", 28))
MSIX_CAPABILITY = _bits(
    "MSI-X capability", "", 12,
    ("id", 8), ("next", 8), ("table_size", 11), ("_r0", 3), ("function_mask", 1), ("enable", 1),
    ("table_bir", 3), ("table_offset", 29), ("pba_bir", 3), ("pba_offset", 29))
EXPRESS_CAPABILITY = _bits(
    "PCI Express capability", "Version 2, of an endpoint.", 60,
    ("id", 8), ("next", 8), ("version", 4), ("_device_type", 4), ("_r0", 8),
    ("max_payload_supported", 3), ("_r1", 2), ("extended_tag_supported", 1), ("_latencies", 9),
    ("role_based_error_reporting", 1), ("_r2", 12), ("function_level_reset", 1), ("_r3", 3),
    ("error_reporting_enable", 4), ("relaxed_ordering_enable", 1), ("max_payload_size", 3), ("extended_tag_enable", 1),
    ("_r4", 2), ("no_snoop_enable", 1), ("max_read_request_size", 3), ("initiate_function_level_reset", 1),
    ("errors_detected", 4), ("_r5", 12),
    ("max_link_speed", 4), ("max_link_width", 6), ("_r6", 22),
    ("aspm_control", 2), ("_r7", 1), ("read_completion_boundary", 1), ("_r8", 2), ("common_clock", 1),
    ("extended_synch", 1), ("_r9", 8), ("link_speed", 4), ("link_width", 6), ("_r10", 6),
    ("_slot_and_root", 128),
    ("completion_timeout_ranges", 4), ("completion_timeout_disable_supported", 1), ("_r11", 27),
    ("completion_timeout_value", 4), ("completion_timeout_disable", 1), ("_r12", 27),
    ("_r13", 1), ("supported_link_speeds", 7), ("_r14", 24), ("target_link_speed", 4), ("_r15", 28), ("_slot_2", 64))
ERROR_CAPABILITY = _bits(
    "advanced error reporting capability", "", 44,
    ("id", 16), ("version", 4), ("next", 12), ("uncorrectable_status", 32), ("uncorrectable_mask", 32),
    ("uncorrectable_severity", 32), ("correctable_status", 32), ("correctable_mask", 32), ("_control", 32),
    ("_header_log", 128))
# Errors with a bit: data link, poisoned, flow control, timeout, aborts, overflow, malformed, ECRC, unsupported;
# receiver, bad TLP, bad DLLP, replays, advisory.
UNCORRECTABLE, CORRECTABLE = 0x001F_F010, 0x0000_31C1
SEVERITY, ADVISORY_NONFATAL = 0x0006_2010, 0x0000_2000      # defaults of severity and of the correctable mask


@dataclass(frozen=True)
class Bar:
    """Memory BAR: its number and size in bytes, a power of two; a 64-bit one takes the next number as well."""

    index: int
    size: int
    is_64bit: bool = False
    prefetchable: bool = False


@dataclass(frozen=True)
class PciFunction:
    """Properties of the function that software sees in configuration space.

    Attributes
    ----------
    msix_vectors : int
        Entries of the MSI-X table, which is in BAR 0.
    link_speed, link_width : int
        Of the link capabilities: 3 is 8.0 GT/s.
    """

    msix_vectors: int
    bars: tuple[Bar, ...] = (Bar(0, abi.BAR_BYTES, is_64bit=True),)
    vendor_id: int = abi.PCI_VENDOR_ID
    device_id: int = abi.PCI_DEVICE_ID
    class_code: int = CLASS_INFINIBAND
    max_payload_bytes: int = 1024
    extended_tags: bool = True
    link_speed: int = GEN3
    link_width: int = 16


class Configuration(NamedTuple):
    """Configuration space after a reset, and masks of the bits that a write sets and that a write of 1 clears."""

    values: bytes
    writable: bytes
    clearable: bytes


def card_function(params: CardParams) -> PciFunction:
    """Return the function of a card."""
    return PciFunction(params.msix_vectors)


def _bars(function: PciFunction) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield offset, value and writable bits of each BAR."""
    for bar in function.bars:
        kind = MEMORY_64BIT * bar.is_64bit | MEMORY_PREFETCHABLE * bar.prefetchable
        width = 8 if bar.is_64bit else 4
        writable = (1 << 8 * width) - bar.size
        yield BAR_OFFSET + 4 * bar.index, kind.to_bytes(width, "little"), writable.to_bytes(width, "little")


def _all_ones(layout: Layout, *names: str) -> bytes:
    return layout.pack(**{name: (1 << layout.by_name[name].width) - 1 for name in names})


def _parts(function: PciFunction) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """Yield offset, value, writable bits and bits cleared by 1 of header, capabilities and BARs."""
    yield (0, HEADER.pack(
        vendor_id=function.vendor_id, device_id=function.device_id, capabilities_list=1,
        class_code=function.class_code, subsystem_vendor_id=function.vendor_id, subsystem_id=function.device_id,
        capabilities_pointer=POWER_MANAGEMENT),
        _all_ones(HEADER, "memory_space", "bus_master", "parity_response", "serr_enable", "interrupt_disable",
                  "cache_line_size", "interrupt_line"),
        _all_ones(HEADER, "master_data_parity_error", "signaled_target_abort", "received_target_abort",
                  "received_master_abort", "signaled_system_error", "detected_parity_error"))
    for offset, value, writable in _bars(function):
        yield offset, value, writable, bytes(len(value))
    yield (POWER_MANAGEMENT, POWER.pack(id=ID_POWER_MANAGEMENT, next=MSIX, version=3, no_soft_reset=1),
           _all_ones(POWER, "power_state"), bytes(POWER.size_bytes))
    yield (MSIX, MSIX_CAPABILITY.pack(
        id=ID_MSIX, next=EXPRESS, table_size=function.msix_vectors - 1, table_offset=abi.MSIX_TABLE_OFFSET >> 3,
        pba_offset=abi.MSIX_PBA_OFFSET >> 3), _all_ones(MSIX_CAPABILITY, "function_mask", "enable"),
        bytes(MSIX_CAPABILITY.size_bytes))
    yield (EXPRESS, EXPRESS_CAPABILITY.pack(
        id=ID_EXPRESS, version=2, max_payload_supported=(function.max_payload_bytes // PAYLOAD_UNIT).bit_length() - 1,
        extended_tag_supported=function.extended_tags, role_based_error_reporting=1, function_level_reset=1,
        relaxed_ordering_enable=1, no_snoop_enable=1, max_read_request_size=2,
        max_link_speed=function.link_speed, max_link_width=function.link_width, link_speed=function.link_speed,
        link_width=function.link_width, completion_timeout_ranges=2, completion_timeout_disable_supported=1,
        supported_link_speeds=(1 << function.link_speed) - 1, target_link_speed=function.link_speed),
        _all_ones(EXPRESS_CAPABILITY, "error_reporting_enable", "relaxed_ordering_enable", "max_payload_size",
                  "extended_tag_enable", "no_snoop_enable", "max_read_request_size", "aspm_control",
                  "read_completion_boundary", "common_clock", "extended_synch", "completion_timeout_value",
                  "completion_timeout_disable", "target_link_speed"),
        _all_ones(EXPRESS_CAPABILITY, "errors_detected"))
    errors = {"uncorrectable": UNCORRECTABLE, "correctable": CORRECTABLE}
    yield (ERROR_REPORTING, ERROR_CAPABILITY.pack(
        id=ID_ERROR_REPORTING, version=2, uncorrectable_severity=SEVERITY, correctable_mask=ADVISORY_NONFATAL),
        ERROR_CAPABILITY.pack(uncorrectable_severity=UNCORRECTABLE,
                              **{f"{kind}_mask": bits for kind, bits in errors.items()}),
        ERROR_CAPABILITY.pack(**{f"{kind}_status": bits for kind, bits in errors.items()}))


def configuration(function: PciFunction) -> Configuration:
    """Return the configuration space of a function."""
    spaces = tuple(bytearray(CONFIG_BYTES) for _ in Configuration._fields)
    for offset, *parts in _parts(function):
        for space, part in zip(spaces, parts, strict=True):
            space[offset : offset + len(part)] = part
    return Configuration(*map(bytes, spaces))
