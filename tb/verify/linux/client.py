"""Client of a vfio-user server, with QEMU's habits, and the driver's back end over it."""

import array
import errno
import fcntl
import mmap
import os
import socket

from weft.driver.linux.libc import PAGE
from weft.driver.linux.memory import LinuxMemory
from weft.driver.linux.region import address_of
from weft.driver.pci.access import PciAccess
from weft.driver.pci.device import PciDevice
from weft.driver.terms.program_mapping import MappingMethod, ProgramMapping
from weft.driver.vfio_user.messages import (
    DMA_MAP,
    DMA_UNMAP,
    HEADER,
    IRQ_SET,
    READABLE,
    REGION_ACCESS,
    WRITEABLE,
    Command,
    Flag,
    Framer,
    Irq,
    IrqSet,
    Message,
    Region,
    version_body,
)
from weft.hdl.contract import pci

QEMU = {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "max_data_xfer_size": 1048576,
        "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": True}
BOTH = READABLE | WRITEABLE
ARENA_BYTES = 1 << 28
MSIX_CONTROL, DEVICE_CONTROL = pci.MSIX + 2, pci.EXPRESS + 8
ENABLE_MSIX, INITIATE_FLR = 1 << 15, 1 << 15


def memfd(size, *, sealed=True):
    """Return the descriptor of a memfd, sealed against shrinking as QEMU's."""
    file = os.memfd_create("guest", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.truncate(file, size)
    if sealed:
        fcntl.fcntl(file, 1033, 2)      # F_ADD_SEALS, F_SEAL_SHRINK
    return file


def map_body(address, size, offset=0, flags=BOTH):
    return DMA_MAP.pack(argsz=DMA_MAP.size_bytes, flags=flags, offset=offset, address=address, size=size)


def unmap_body(address, size, flags=0):
    return DMA_UNMAP.pack(argsz=DMA_UNMAP.size_bytes, flags=flags, address=address, size=size)


def access_body(region, offset, count, data=b""):
    return REGION_ACCESS.pack(offset=offset, region=region, count=count) + data


def irq_body(index, start, count, flags=IrqSet.DATA_EVENTFD | IrqSet.ACTION_TRIGGER):
    return IRQ_SET.pack(argsz=IRQ_SET.size_bytes, flags=flags, index=index, start=start, count=count)


class Client:
    """Connection of a machine to the socket of a function."""

    def __init__(self, path, *, capabilities=QEMU):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self._framer, self._number = Framer(), 0
        self.version = self.call(Command.VERSION, version_body(capabilities))

    def post(self, command, body=b"", files=(), flags=Flag.NO_REPLY):
        """Send a command, and return its number."""
        self._number = (self._number + 1) % (1 << 16)
        data = Message(self._number, command, flags, body=body).pack()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        sent = self.socket.sendmsg([data], ancillary)
        self.socket.sendall(data[sent:])
        return self._number

    def reply(self):
        """Return the next reply."""
        message = None
        while message is None:
            data = self.socket.recv(self._framer.wanted)
            if not data:
                raise EOFError
            message = self._framer.feed(data)
        return message

    def call(self, command, body=b"", files=()):
        """Return the body of the reply. Raise OSError for an error."""
        number = self.post(command, body, files, 0)
        reply = self.reply()
        assert (reply.msg_id, reply.command, reply.flags & Flag.REPLY) == (number, command, Flag.REPLY)
        if reply.flags & Flag.ERROR:
            assert not reply.body
            raise OSError(reply.error, os.strerror(reply.error))
        return reply.body

    def read(self, region, offset, count):
        body = access_body(region, offset, count)
        answer = self.call(Command.REGION_READ, body)
        assert answer[:len(body)] == body and len(answer) == len(body) + count
        return answer[len(body):]

    def write(self, region, offset, data):
        """Write as QEMU: to a BAR without a reply, to configuration space with one."""
        body = access_body(region, offset, len(data), data)
        if region == Region.CONFIG:
            assert self.call(Command.REGION_WRITE, body) == body[:REGION_ACCESS.size_bytes]
        else:
            self.post(Command.REGION_WRITE, body)

    def map(self, address, size, offset=0, flags=BOTH, file=None):
        files = () if file is None else (file,)
        assert self.call(Command.DMA_MAP, map_body(address, size, offset, flags), files) == b""

    def unmap(self, address, size):
        body = unmap_body(address, size)
        assert self.call(Command.DMA_UNMAP, body) == body

    def close(self):
        self.socket.close()


class Words:
    """Registers in single accesses of one width, as a cast ``memoryview`` of a mapped BAR."""

    def __init__(self, client, width):
        self._client, self._width = client, width

    def cast(self, kind):
        return Words(self._client, {"I": 4, "Q": 8}[kind])

    def __getitem__(self, index):
        return int.from_bytes(self._client.read(Region.BAR0, index * self._width, self._width), "little")

    def __setitem__(self, index, value):
        self._client.write(Region.BAR0, index * self._width, value.to_bytes(self._width, "little"))

    def release(self):
        return


class GuestMapper:
    """IOMMU of a machine: pages of the arena at their virtual addresses, one DMA_MAP each, as QEMU sends them."""

    contiguous = True

    def __init__(self, client):
        self._client, self.arena, self.offsets = client, memfd(ARENA_BYTES), {}
        self.for_programs = ProgramMapping(MappingMethod.VFIO, self.arena)

    def map(self, va, length):
        pages = list(range(va, va + length, PAGE))
        for page in pages:
            self._client.map(page, PAGE, self.offsets[page], file=self.arena)
        return pages

    def unmap(self, va, length):
        self._client.unmap(va, length)

    def close(self):
        os.close(self.arena)


class GuestMemory(LinuxMemory):
    """Memory of a machine, in a file that it shares with the server."""

    def __init__(self, client):
        super().__init__(GuestMapper(client))
        self._next = 0

    def alloc(self, size, *, align=64, contiguous=True, page_bytes=PAGE):
        unit = max(align, page_bytes, PAGE)
        length = -(-size // page_bytes) * page_bytes
        mapping = mmap.mmap(self.mapper.arena, length + unit, offset=self._next)
        start = address_of(mapping)
        self.mapper.offsets.update({start + at: self._next + at for at in range(0, length + unit, PAGE)})
        self._next += length + unit
        return self._own(-(-start // unit) * unit, size, mapping, page_bytes)


class GuestAccess(PciAccess):
    """Function of a server, as a machine's kernel opens it."""

    def __init__(self, client):
        self.client = client
        self.bar, self.memory = Words(client, 1), GuestMemory(client)

    def config_read(self, offset, length):
        return self.client.read(Region.CONFIG, offset, length)

    def config_write(self, offset, data):
        self.client.write(Region.CONFIG, offset, data)

    def _set(self, offset, bit):
        value = int.from_bytes(self.config_read(offset, 2), "little")
        self.config_write(offset, (value | bit).to_bytes(2, "little"))

    def reset(self):
        self._set(DEVICE_CONTROL, INITIATE_FLR)

    def set_msix(self, eventfds):
        if eventfds:
            for vector, file in enumerate(eventfds):
                self.client.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, vector, 1), [file])
            self._set(MSIX_CONTROL, ENABLE_MSIX)
        else:
            none = IrqSet.DATA_NONE | IrqSet.ACTION_TRIGGER
            self.client.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, 0, 0, none))
        return True

    def close(self):
        return


def guest_device(client):
    """Return the driver's device of a client."""
    return PciDevice(GuestAccess(client))


def header(command, size, *, flags=0):
    """Return a header with any size."""
    return HEADER.pack(msg_id=1, command=command, msg_size=size, flags=flags)


def code_of(call):
    """Return the error code of the OSError that a call raises, or 0."""
    try:
        call()
    except OSError as error:
        return error.errno or errno.EIO
    return 0
