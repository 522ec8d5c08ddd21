"""Card of a few registers, and a function with it, without a socket."""

from collections import Counter

from weft.driver.vfio_user.card_function import CardFunction
from weft.driver.vfio_user.messages import HEADER, Command, Flag, Message, version_body
from weft.driver.vfio_user.server import Server
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.contract.pci import card_function
from weft.tb.verify.linux.client import QEMU

COMMAND = 4
READ, WRITE, RAISE, FAIL = range(1, 5)


class ScratchCard:
    """Keeps written registers. A write of ``nic_rx_slot_log2`` is a command: see :data:`READ` and the others.

    ``status_block`` is the address of a DMA of 8 bytes, ``nic_rx_buffer`` its data.
    """

    def __init__(self, incarnation):
        self.incarnation, self.registers, self.pushes, self.counters = incarnation, {}, [], Counter()

    def read(self, offset):
        return self.registers.get(offset, 0)

    def write(self, offset, value):
        self.registers[offset] = value
        if offset == abi.REGISTER["nic_rx_slot_log2"].offset:
            self._execute(value)

    def _execute(self, command):
        address, data = abi.REGISTER["status_block"].offset, abi.REGISTER["nic_rx_buffer"].offset
        if command == READ:
            self.registers[data] = int.from_bytes(self.incarnation.read(self.read(address), 8), "little")
        elif command == WRITE:
            self.incarnation.write(self.read(address), self.read(data).to_bytes(8, "little"))
        elif command == FAIL:
            raise AssertionError("a descriptor that no driver writes")
        elif command >= RAISE << 8:
            self.incarnation.interrupt(command & 0xFF)

    def push(self, offset, data):
        self.pushes.append((offset, data))

    def receive(self, frame):
        raise AssertionError("no line")


class Bench:
    """Server with a function, called without a socket."""

    def __init__(self, *, capabilities=QEMU, make=ScratchCard):
        self.sentences = []
        self.function = CardFunction(card_function(preset("test")), make, self.sentences.append)
        self.server = Server(self.function)
        if capabilities is not None:
            self.call(Command.VERSION, version_body(capabilities))

    @property
    def card(self):
        return self.function.card

    def send(self, command, body=b"", files=(), flags=0):
        return self.server.receive(Message(7, command, flags, body=body, files=list(files)))

    def call(self, command, body=b"", files=()):
        """Return (error, body) of the reply."""
        reply = self.send(command, body, files)
        assert reply is not None
        head = HEADER.unpack(reply)
        assert (head.msg_id, head.command, head.msg_size) == (7, command, len(reply)) and head.flags & Flag.REPLY
        assert bool(head.error) == bool(head.flags & Flag.ERROR)
        return head.error, reply[HEADER.size_bytes:]

    def enable(self, command=6):
        """Let the function respond and be bus master."""
        self.function.config.write(COMMAND, bytes([command]))

    def set(self, name, value):
        register = abi.REGISTER[name]
        self.function.region_write(0, register.offset, value.to_bytes(register.width // 8, "little"))

    def get(self, name):
        register = abi.REGISTER[name]
        return int.from_bytes(self.function.region_read(0, register.offset, register.width // 8), "little")

    def dma(self, command, address, data=0):
        """Let the card read or write 8 bytes, and return its register with the data."""
        self.set("status_block", address)
        self.set("nic_rx_buffer", data)
        self.set("nic_rx_slot_log2", command)
        return self.get("nic_rx_buffer")
