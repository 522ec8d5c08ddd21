"""Server's side of a vfio-user connection, sans I/O: a message in, its reply out, and calls of a PCI function.

The server sends no commands: it does not use DMA_READ and DMA_WRITE. It offers no migration, no device features and no
descriptors of regions.
"""

import errno
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from . import messages as wire
from .dma import DmaError, DmaMap
from .interrupts import Interrupts
from .messages import Command, Flag, IrqSet, Message, Violation


class Function(Protocol):
    """PCI function of a server.

    Attributes
    ----------
    regions : dict of int to int
        Bytes of each region that exists.
    dma, interrupts
        Memory of the client, and its eventfds.
    """

    @property
    def regions(self) -> Mapping[int, int]: ...

    @property
    def dma(self) -> DmaMap: ...

    @property
    def interrupts(self) -> Interrupts: ...

    def region_read(self, region: int, offset: int, count: int) -> bytes:
        """Return ``count`` bytes of a region. The range is inside of the region."""

    def region_write(self, region: int, offset: int, data: bytes) -> None:
        """Write to a region. The range is inside of the region."""

    def reset(self) -> None:
        """Reset the function, as by power."""


class Refused(Exception):
    """A command fails, with an ``errno``."""

    def __init__(self, code: int) -> None:
        super().__init__(os.strerror(code))
        self.code = code


class Server:
    """State of a connection.

    Parameters
    ----------
    function : Function
    close : callable(files)
        Closes descriptors, and clears their list.

    Attributes
    ----------
    capabilities : dict or None
        As negotiated; None before VERSION.
    refused : int
        Number of commands that failed, posted ones included.
    """

    def __init__(self, function: Function, close: Callable[[list[int]], object] = wire.close_all) -> None:
        self.function, self._close = function, close
        self.capabilities: dict[str, int | bool] | None = None
        self.refused = 0
        self._handlers: dict[int, Callable[[Message], bytes]] = {
            Command.VERSION: self._version, Command.DMA_MAP: self._dma_map, Command.DMA_UNMAP: self._dma_unmap,
            Command.DEVICE_GET_INFO: self._device_info, Command.DEVICE_GET_REGION_INFO: self._region_info,
            Command.DEVICE_GET_IRQ_INFO: self._irq_info, Command.DEVICE_SET_IRQS: self._set_irqs,
            Command.REGION_READ: self._region_read, Command.REGION_WRITE: self._region_write,
            Command.DEVICE_RESET: self._reset, Command.REGION_WRITE_MULTI: self._write_multi}

    def receive(self, message: Message) -> bytes | None:
        """Execute a command, close the descriptors that it leaves, and return the bytes of the reply, if it wants one.

        Raises
        ------
        Violation
            If the client breaks the protocol: the connection must end.
        """
        try:
            return self._receive(message)
        finally:
            self._close(message.files)

    def _receive(self, message: Message) -> bytes | None:
        if message.flags & ~(Flag.NO_REPLY | Flag.ERROR):
            raise Violation("a reply arrived, and no command was sent")
        if (self.capabilities is None) != (message.command == Command.VERSION):
            raise Violation("VERSION must be the first message, and no other one")
        try:
            handler = self._handlers.get(message.command)
            if handler is None:
                raise Refused(errno.EOPNOTSUPP)
            reply = Message(message.msg_id, message.command, Flag.REPLY, body=handler(message))
        except (Refused, DmaError) as error:
            code = error.code if isinstance(error, Refused) else error.errno
            reply = Message(message.msg_id, message.command, Flag.REPLY | Flag.ERROR, code or errno.EINVAL)
            self.refused += 1
        return None if message.flags & Flag.NO_REPLY else reply.pack()

    # -------------------------------------------------------------------------------- negotiation, memory

    def _version(self, message: Message) -> bytes:
        major, minor, proposed = wire.parse_version(message.body)
        if major != wire.MAJOR:
            raise Violation(f"the client has version {major}.{minor}, this server {wire.MAJOR}.{wire.MINOR}")
        self.capabilities = wire.negotiated(proposed)
        self.function.dma.limit = self.capabilities["max_dma_maps"]
        return wire.version_body(self.capabilities, minor=min(minor, wire.MINOR))

    def _dma_map(self, message: Message) -> bytes:
        _sized(message, wire.DMA_MAP.size_bytes)
        wanted = wire.DMA_MAP.unpack(message.body)
        if len(message.files) > 1:
            raise Refused(errno.EINVAL)
        file = message.files[0] if message.files else None
        self.function.dma.add(wanted.address, wanted.size, wanted.offset, wanted.flags, file)
        message.files.clear()
        return b""

    def _dma_unmap(self, message: Message) -> bytes:
        _sized(message, wire.DMA_UNMAP.size_bytes)
        wanted = wire.DMA_UNMAP.unpack(message.body)
        if wanted.flags == wire.UNMAP_ALL and not wanted.address and not wanted.size:
            self.function.dma.clear()
        elif wanted.flags:
            raise Refused(errno.EINVAL)
        else:
            self.function.dma.remove(wanted.address, wanted.size)
        return message.body

    # ------------------------------------------------------------------------------------ properties

    def _device_info(self, message: Message) -> bytes:
        _sized(message, size := wire.DEVICE_INFO.size_bytes)
        return wire.DEVICE_INFO.pack(argsz=size, flags=wire.DEVICE_RESET_SUPPORTED | wire.DEVICE_PCI,
                                     num_regions=wire.REGIONS, num_irqs=len(wire.Irq))

    def _region_info(self, message: Message) -> bytes:
        _sized(message, size := wire.REGION_INFO.size_bytes)
        index = _below(wire.REGION_INFO.unpack(message.body).index, wire.REGIONS)
        region = self.function.regions.get(index, 0)
        return wire.REGION_INFO.pack(argsz=size, flags=(wire.READABLE | wire.WRITEABLE) * bool(region), index=index,
                                     size=region)

    def _irq_info(self, message: Message) -> bytes:
        _sized(message, size := wire.IRQ_INFO.size_bytes)
        index = _below(wire.IRQ_INFO.unpack(message.body).index, len(wire.Irq))
        count = self.function.interrupts.counts.get(index, 0)
        return wire.IRQ_INFO.pack(argsz=size, flags=wire.IRQ_EVENTFD * bool(count), index=index, count=count)

    def _set_irqs(self, message: Message) -> bytes:
        if len(message.body) < wire.IRQ_SET.size_bytes:
            raise Refused(errno.EINVAL)
        wanted = wire.IRQ_SET.unpack(message.body)
        interrupts, action = self.function.interrupts, IrqSet.ACTION_TRIGGER
        _below(wanted.index, len(wire.Irq))
        if wanted.flags == action | IrqSet.DATA_EVENTFD:
            interrupts.assign(wanted.index, wanted.start, wanted.count, message.files)
        elif wanted.flags == action | IrqSet.DATA_NONE and not wanted.count:
            interrupts.release(wanted.index)
        else:
            raise Refused(errno.EOPNOTSUPP)
        return b""

    # --------------------------------------------------------------------------------------- accesses

    def _region_read(self, message: Message) -> bytes:
        _sized(message, wire.REGION_ACCESS.size_bytes)
        access = wire.REGION_ACCESS.unpack(message.body)
        self._inside(access.region, access.offset, access.count)
        return message.body + self.function.region_read(access.region, access.offset, access.count)

    def _region_write(self, message: Message) -> bytes:
        if len(message.body) < (size := wire.REGION_ACCESS.size_bytes):
            raise Refused(errno.EINVAL)
        access = wire.REGION_ACCESS.unpack(message.body)
        _sized(message, size + access.count)
        self._inside(access.region, access.offset, access.count)
        self.function.region_write(access.region, access.offset, message.body[size:])
        return message.body[:size]

    def _write_multi(self, message: Message) -> bytes:
        """Execute the writes in order, up to the first impossible one."""
        assert self.capabilities is not None
        head, size = wire.WRITE_MULTI.size_bytes, wire.REGION_ACCESS.size_bytes
        if not self.capabilities.get("write_multiple"):
            raise Refused(errno.EOPNOTSUPP)
        if len(message.body) < head:
            raise Refused(errno.EINVAL)
        step = size + wire.WRITE_MULTI_DATA
        _sized(message, head + step * wire.WRITE_MULTI.unpack(message.body).wr_cnt)
        for at in range(head, len(message.body), step):
            access = wire.REGION_ACCESS.unpack(message.body[at : at + size])
            if access.count > wire.WRITE_MULTI_DATA:
                raise Refused(errno.EINVAL)
            self._inside(access.region, access.offset, access.count)
            self.function.region_write(access.region, access.offset,
                                       message.body[at + size : at + size + access.count])
        return message.body[:head]

    def _inside(self, region: int, offset: int, count: int) -> None:
        """Raise Refused unless a region contains a range of a permitted length."""
        assert self.capabilities is not None
        if not 0 < count <= self.capabilities["max_data_xfer_size"] \
                or offset + count > self.function.regions.get(region, 0):
            raise Refused(errno.EINVAL)

    def _reset(self, message: Message) -> bytes:
        _sized(message, 0)
        self.function.reset()
        return b""


def _sized(message: Message, size: int) -> None:
    """Raise Refused unless the body has a size."""
    if len(message.body) != size:
        raise Refused(errno.EINVAL)


def _below(number: int, limit: int) -> int:
    """Return a number; raise Refused unless it is below a limit."""
    if number >= limit:
        raise Refused(errno.EINVAL)
    return number
