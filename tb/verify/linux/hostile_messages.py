"""Random and mutated messages of a machine, and accesses of its card to any address.

Every message is answered, or it ends the connection by a violation. Nothing grows beyond its limit, no descriptor is
left, and no byte outside of the ranges that are mapped for writing changes.
"""

import contextlib
import os
import random

from weft.driver.device.attached import MemoryFault
from weft.driver.vfio_user import messages as wire
from weft.driver.vfio_user.card_function import CardFunction
from weft.driver.vfio_user.messages import Command, Flag, Framer, Irq, Message, Region, Violation, version_body
from weft.driver.vfio_user.server import Server
from weft.hdl.contract.params import preset
from weft.hdl.contract.pci import card_function
from weft.model.functional.card import FunctionalCard
from weft.model.loop import EventLoop
from weft.tb.app.machine.machine import CardLoop
from weft.tb.verify.linux.client import QEMU, access_body, irq_body, map_body, memfd, unmap_body

PAGES, COMMAND = 16, 4
MARK, PRIVATE = 0xA5, 0x1234_5000      # contents and address of a page that the card may only read


class MessageFuzz:
    """Functional card as a PCI function, and random messages to it."""

    def __init__(self, seed):
        self.rng, self.loop, self.violations, self.answered, self.reads = random.Random(seed), EventLoop(), 0, 0, 0
        self.file, self.private = memfd(PAGES * wire.PAGE), memfd(wire.PAGE)
        os.pwrite(self.private, bytes([MARK]) * wire.PAGE, 0)
        self.stops = []
        self.function = CardFunction(card_function(preset("test")), self._make, self._reported)
        self.server, self.framer = Server(self.function), Framer()
        self.restart()

    def _reported(self, sentence):
        if "stops" in sentence:
            self.stops.append(sentence)

    def _make(self, incarnation):
        return FunctionalCard(incarnation, CardLoop(self.loop, incarnation.run), lambda *sent: None,
                              incarnation.interrupt, preset="test", seed=1, checks_driver=False)

    def number(self, bits):
        rng = self.rng
        ones = (1 << bits) - 1
        return rng.choice([0, 1, PRIVATE & ones, ones, 1 << rng.randrange(bits), rng.getrandbits(bits),
                           rng.randrange(PAGES) * wire.PAGE & ones])

    def body(self, command):
        """Return a body that is possible, or nearly so."""
        rng, number = self.rng, self.number
        region = rng.choice([Region.BAR0, Region.BAR0, Region.CONFIG, number(32)])
        offset = rng.choice([number(64), rng.randrange(0x10000), 4 * rng.randrange(0x100), 4, 0x78])
        count = rng.choice([1, 2, 4, 4, 8, 8, 64, number(32)])
        data = rng.randbytes(min(count, 64))
        if command == Command.DMA_MAP:
            return map_body(number(64), rng.choice([wire.PAGE, number(64)]), number(64),
                            rng.choice([1, 2, 3, number(32)]))
        if command == Command.DMA_UNMAP:
            return unmap_body(number(64), rng.choice([wire.PAGE, number(64)]))
        if command == Command.DEVICE_SET_IRQS:
            return irq_body(rng.choice([Irq.MSIX, number(32)]), rng.choice([0, number(32)]),
                            rng.choice([0, 1, number(32)]), rng.choice([0x24, 0x21, number(32)]))
        if command == Command.REGION_READ:
            return access_body(region, offset, count)
        if command == Command.REGION_WRITE:
            return access_body(region, offset, count, data)
        if command == Command.REGION_WRITE_MULTI:
            writes = rng.randrange(4)
            return wire.WRITE_MULTI.pack(wr_cnt=rng.choice([writes, number(64)])) + b"".join(
                access_body(region, offset, rng.choice([4, 8, number(32)]), rng.randbytes(8)) for _ in range(writes))
        if command == Command.VERSION:
            return version_body(QEMU)
        return rng.randbytes(rng.choice([0, 16, 32, rng.randrange(100)]))

    def message(self):
        """Return the bytes of a message."""
        rng = self.rng
        command = rng.choice([*Command, Command.REGION_WRITE, Command.REGION_WRITE, Command.DMA_MAP, self.number(16)])
        command = command if command != Command.VERSION or rng.random() < 0.05 else Command.REGION_WRITE
        body = bytearray(self.body(command))
        for _ in range(rng.choice([0, 0, 0, 1, 5])):
            if body:
                body[rng.randrange(len(body))] = rng.randrange(256)
        flags = rng.choice([0, 0, 0, Flag.NO_REPLY, rng.choice([0, self.number(32)])])
        whole = bytearray(wire.Message(self.number(16), command, flags, self.number(32), bytes(body)).pack())
        if rng.random() < 0.01:
            whole[rng.choice([4, 4, 6, 7])] = rng.randrange(256)
        return bytes(whole)

    def files(self):
        rng = self.rng
        if rng.random() < 0.5:
            return []
        makers = [lambda: os.dup(self.file), lambda: os.dup(self.file), lambda: os.eventfd(0),
                  lambda: os.open(os.devnull, os.O_RDWR)]
        return [rng.choice(makers)() for _ in range(rng.choice([1, 1, 1, 2, 17]))]

    def step(self):
        """Send a message in pieces; begin another connection after a violation."""
        data, files = self.message(), self.files()
        try:
            while data:
                take = min(self.framer.wanted, self.rng.choice([1, 1 << 20]))
                part, data = data[:take], data[take:]
                message = self.framer.feed(part, files)
                files = []
                if message is not None:
                    reply = self.server.receive(message)
                    self.answered += 1
                    assert (reply is None) == bool(message.flags & Flag.NO_REPLY)
                    assert reply is None or len(reply) <= wire.MESSAGE_BYTES_MAX
        except Violation:
            self.violations += 1
            self.restart()
        self.function.incarnation.run(self.access)
        self.loop.run(self.loop.now_ns + 1000)
        function = self.function
        assert len(function.dma) <= 65535 and len(function.interrupts) <= 9 and function.dma.files <= 64

    def access(self):
        """Let the card write, then read, anywhere: a driver can make it do so."""
        incarnation, address = self.function.incarnation, self.number(64) + self.rng.randrange(64)
        incarnation.write(address, bytes(self.rng.choice([1, 8, 64, 5000])))
        with contextlib.suppress(MemoryFault):
            incarnation.read(address, 8)
        self.reads += 1

    def restart(self):
        self.framer.close()
        self.framer = Framer()
        self.function.disconnected()
        self.server = Server(self.function)
        self.server.receive(Message(0, Command.VERSION, body=version_body(QEMU)))
        self.function.dma.add(PRIVATE, wire.PAGE, 0, wire.READABLE, os.dup(self.private))
        self.function.config.write(COMMAND, b"\6")

    def close(self):
        """Release everything."""
        self.framer.close()
        self.function.disconnected()
        os.close(self.file)
        os.close(self.private)

    @property
    def private_changed(self):
        """The page that the card may only read has changed."""
        return os.pread(self.private, wire.PAGE, 0) != bytes([MARK]) * wire.PAGE


def open_files():
    """Return the number of descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def fuzz(count, seed, progress=lambda done: None):
    """Send messages; return figures.

    Returns
    -------
    dict of str to int
        ``messages``, ``answered``, ``violations``, ``reads``; and what must be 0: ``exceptions``, ``stops`` of the card
        by an exception of its model, ``wrong_bytes``, ``leaks`` of descriptors.
    """
    before, exceptions = open_files(), []
    machine = MessageFuzz(seed)
    for number in range(count):
        try:
            machine.step()
        except Exception as error:
            exceptions.append(error)
            machine.restart()
        if not number % 1000:
            progress(number)
    wrong = machine.private_changed
    machine.close()
    stops = [one for one in machine.stops if "DmaLost" not in one]
    return {"messages": count, "answered": machine.answered, "violations": machine.violations, "reads": machine.reads,
            "exceptions": len(exceptions), "stops": len(stops), "wrong_bytes": int(wrong),
            "leaks": open_files() - before, "first": str((exceptions + stops)[:1])}
