"""Messages of the vfio-user protocol, version 0.0 (``docs/interop/vfio-user.rst`` of QEMU), and their framing.

Command ``X`` is the specification's ``VFIO_USER_X``; structures have its field names. A message is a header and a body;
its descriptors come with its first byte. Sans I/O: bytes and descriptors in, messages out.
"""

import enum
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from weft.hdl.contract.layout import Field, Layout

MAJOR, MINOR = 0, 0
DATA_BYTES_MAX = 1 << 16       # of a region access: max_data_xfer_size
FILES_MAX = 16                 # with a message: max_msg_fds
MAPS_MAX = 1 << 18             # at a time: max_dma_maps
DEFAULTS = {"max_msg_fds": 1, "max_data_xfer_size": 1 << 20, "max_dma_maps": 0xFFFF}     # of the specification
PAGE = 4096
FILES_OF_KERNEL = 253          # SCM_MAX_FD


class Command(enum.IntEnum):
    """Command of a message."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_GET_INFO = 4
    DEVICE_GET_REGION_INFO = 5
    DEVICE_GET_REGION_IO_FDS = 6
    DEVICE_GET_IRQ_INFO = 7
    DEVICE_SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    DEVICE_RESET = 13
    REGION_WRITE_MULTI = 15
    DEVICE_FEATURE = 16
    MIG_DATA_READ = 17
    MIG_DATA_WRITE = 18


class Flag(enum.IntFlag):
    """Flags of a header: without REPLY, the message is a command."""

    REPLY = 1
    NO_REPLY = 0x10
    ERROR = 0x20


class Region(enum.IntEnum):
    """Regions of a PCI function (``VFIO_PCI_*_REGION_INDEX``); 0 to 5 are its BARs."""

    BAR0 = 0
    ROM = 6
    CONFIG = 7
    VGA = 8


REGIONS = 9


class Irq(enum.IntEnum):
    """Kinds of interrupts (``VFIO_PCI_*_IRQ_INDEX``)."""

    INTX = 0
    MSI = 1
    MSIX = 2
    ERR = 3
    REQ = 4


class IrqSet(enum.IntFlag):
    """Flags of DEVICE_SET_IRQS (``VFIO_IRQ_SET_*``)."""

    DATA_NONE = 1
    DATA_BOOL = 2
    DATA_EVENTFD = 4
    ACTION_MASK = 8
    ACTION_UNMASK = 16
    ACTION_TRIGGER = 32


DEVICE_RESET_SUPPORTED, DEVICE_PCI = 1, 2            # VFIO_DEVICE_FLAGS_*
READABLE, WRITEABLE = 1, 2                           # of a DMA range, and VFIO_REGION_INFO_FLAG_*
UNMAP_ALL = 2                                        # VFIO_DMA_UNMAP_FLAG_ALL: every range, with address and size 0
IRQ_EVENTFD, IRQ_NORESIZE = 1, 8                     # VFIO_IRQ_INFO_*


def _layout(name: str, size_bytes: int, *fields: tuple[str, int]) -> Layout:
    return Layout(f"vfio_user_{name}", "", [Field(*each) for each in fields], size_bytes=size_bytes)


HEADER = _layout("header", 16, ("msg_id", 16), ("command", 16), ("msg_size", 32), ("flags", 32), ("error", 32))
VERSION = _layout("version", 4, ("major", 16), ("minor", 16))
DMA_MAP = _layout("dma_map", 32, ("argsz", 32), ("flags", 32), ("offset", 64), ("address", 64), ("size", 64))
DMA_UNMAP = _layout("dma_unmap", 24, ("argsz", 32), ("flags", 32), ("address", 64), ("size", 64))
DEVICE_INFO = _layout("device_info", 16, ("argsz", 32), ("flags", 32), ("num_regions", 32), ("num_irqs", 32))
REGION_INFO = _layout("region_info", 32, ("argsz", 32), ("flags", 32), ("index", 32), ("cap_offset", 32), ("size", 64),
                      ("offset", 64))
IRQ_INFO = _layout("irq_info", 16, ("argsz", 32), ("flags", 32), ("index", 32), ("count", 32))
IRQ_SET = _layout("irq_set", 20, ("argsz", 32), ("flags", 32), ("index", 32), ("start", 32), ("count", 32))
REGION_ACCESS = _layout("region_access", 16, ("offset", 64), ("region", 32), ("count", 32))
WRITE_MULTI = _layout("region_write_multi", 8, ("wr_cnt", 64))
WRITE_MULTI_DATA = 8           # bytes of data in each write of REGION_WRITE_MULTI
MESSAGE_BYTES_MAX = HEADER.size_bytes + REGION_ACCESS.size_bytes + DATA_BYTES_MAX


class Violation(Exception):
    """The peer breaks the protocol; the connection must end."""


@dataclass
class Message:
    """Message of a peer.

    Attributes
    ----------
    msg_id, command, flags, error : int
        Of the header; ``command`` may have a value that :class:`Command` lacks.
    body : bytes
        Everything after the header.
    files : list of int
        Descriptors that came with it. The receiver of the message takes them out of the list, and closes them.
    """

    msg_id: int
    command: int
    flags: int = 0
    error: int = 0
    body: bytes = b""
    files: list[int] = field(default_factory=list)

    def pack(self) -> bytes:
        """Return the bytes of the message."""
        return HEADER.pack(msg_id=self.msg_id, command=self.command, msg_size=HEADER.size_bytes + len(self.body),
                           flags=self.flags, error=self.error) + self.body


def close_all(files: list[int]) -> None:
    """Close descriptors, and clear their list."""
    while files:
        os.close(files.pop())


class Framer:
    """Messages of a stream of bytes.

    A receiver reads at most :attr:`wanted` bytes at a time: only then does it know to which message descriptors belong.

    Parameters
    ----------
    close : callable(files)
        Closes descriptors, and clears their list.
    """

    def __init__(self, close: Callable[[list[int]], object] = close_all) -> None:
        self._close = close
        self._data = bytearray()
        self._files: list[int] = []
        self.wanted = HEADER.size_bytes

    def feed(self, data: bytes, files: Iterable[int] = ()) -> Message | None:
        """Take received bytes and descriptors, and return the message that they complete, or None.

        Raises
        ------
        Violation
            If its size is impossible, or if it has too many descriptors. Its descriptors are closed.
        """
        self._files += files
        self._data += data
        self.wanted -= len(data)
        if len(self._files) > FILES_MAX:
            self._break(f"a message has {len(self._files)} descriptors; {FILES_MAX} are possible")
        if self.wanted:
            return None
        header = HEADER.unpack(self._data)
        if not HEADER.size_bytes <= header.msg_size <= MESSAGE_BYTES_MAX:
            self._break(f"a message has {header.msg_size} bytes; {HEADER.size_bytes} to {MESSAGE_BYTES_MAX} are "
                        "possible")
        self.wanted = header.msg_size - len(self._data)
        if self.wanted:
            return None
        message = Message(header.msg_id, header.command, header.flags, header.error,
                          bytes(self._data[HEADER.size_bytes:]), self._files)
        self._data, self._files, self.wanted = bytearray(), [], HEADER.size_bytes
        return message

    def _break(self, sentence: str) -> None:
        self.close()
        raise Violation(sentence)

    def close(self) -> None:
        """Close the descriptors of a message that is incomplete."""
        self._close(self._files)


def version_body(capabilities: dict[str, Any] | None, *, major: int = MAJOR, minor: int = MINOR) -> bytes:
    """Return the body of VERSION: numbers, and capabilities in JSON unless they are None."""
    data = b"" if capabilities is None else json.dumps({"capabilities": capabilities}).encode() + b"\0"
    return VERSION.pack(major=major, minor=minor) + data


def parse_version(body: bytes) -> tuple[int, int, dict[str, Any]]:
    """Return (major, minor, capabilities) of the body of VERSION.

    Raises
    ------
    Violation
        If it is malformed.
    """
    if len(body) < VERSION.size_bytes:
        raise Violation("VERSION lacks its numbers")
    numbers, data = VERSION.unpack(body), body[VERSION.size_bytes:]
    if not data:
        return numbers.major, numbers.minor, {}
    try:
        content = json.loads(data.removesuffix(b"\0"))
        capabilities = content.get("capabilities", {}) if isinstance(content, dict) else None
    except (ValueError, RecursionError):
        capabilities = None
    if not isinstance(capabilities, dict):
        raise Violation("the capabilities of VERSION are not a JSON object")
    return numbers.major, numbers.minor, capabilities


def negotiated(proposed: dict[str, Any]) -> dict[str, Any]:
    """Return the capabilities of the reply: the smaller limits, and ``write_multiple`` if the client proposes it.

    Raises
    ------
    Violation
        If a limit is not a number.
    """
    found: dict[str, Any] = {}
    for name, mine in (("max_msg_fds", FILES_MAX), ("max_data_xfer_size", DATA_BYTES_MAX), ("max_dma_maps", MAPS_MAX)):
        limit = proposed.get(name, DEFAULTS[name])
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise Violation(f"the capability {name} is not a number")
        found[name] = min(limit, mine)
    found["pgsizes"] = PAGE
    if proposed.get("write_multiple") is True:
        found["write_multiple"] = True
    return found
