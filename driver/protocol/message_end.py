"""What the end of a message says: the contents of a packet without payload."""

import enum
from dataclasses import dataclass

from weft.hdl.contract.layout import Field, Layout


class Kind(enum.IntEnum):
    """Kinds of messages. The first ones ask for something and are counted; the others are answers."""

    WRITE_IMM = 0          # data was written, and an immediate takes a receive
    SEND = 1               # data lies in the mailbox
    SEND_REQUEST = 2       # data waits to be asked for
    READ = 3               # what, and where to: in the mailbox
    FETCH_AND_ADD = 4      # the same
    COMPARE_AND_SWAP = 5
    MAILBOX_ASK = 8        # where the mailbox of this end is; where is that of the other?
    MAILBOX = 9            # here
    GRANT = 10             # where the data of a send may be written: in the mailbox
    SEND_DATA = 11         # it was written
    READ_DATA = 12         # the data of a read was written
    ATOMIC_RESULT = 13     # what was there before
    WRITE = 16             # a plain write, whose last packet is its end: no MESSAGE_END has this kind


REQUESTS = frozenset({Kind.WRITE, Kind.WRITE_IMM, Kind.SEND, Kind.SEND_REQUEST, Kind.READ, Kind.FETCH_AND_ADD,
                      Kind.COMPARE_AND_SWAP})
ATOMICS = frozenset({Kind.FETCH_AND_ADD, Kind.COMPARE_AND_SWAP})
SEQUENCE_BITS = 24

MESSAGE_END = Layout("MESSAGE_END", "End of a message: address, key and immediate of a write without payload.", [
    Field("kind", 4, "What ends.", Kind), Field("solicited", 1, "The receiver's event was asked for."),
    Field("has_imm", 1, "`imm` is the program's."), Field("_r0", 2),
    Field("sequence", SEQUENCE_BITS, "Number of the request among those of its sender; answers have that of theirs."),
    Field("length", 32, "Bytes of the message."),
    Field("argument", 32, "Of MAILBOX and MAILBOX_ASK the key; of ATOMIC_RESULT the high half of the value; else the "
          "slot of the mailbox in bits 15:0, and how many targets are in it in 31:16."),
    Field("imm", 32, "Immediate; of ATOMIC_RESULT the low half of the value; of MAILBOX_ASK the first PSN that its "
          "sender receives, for a peer that was not told before.")], size_bytes=16, byteorder="big")
_FIELDS = [f.name for f in MESSAGE_END.fields if not f.name.startswith("_")]


@dataclass(slots=True)
class MessageEnd:
    """The fields of a MESSAGE_END. ``kind`` may be a number that nothing has; without ``sequence`` it was said by a
    packet with data."""

    kind: Kind
    sequence: int | None = 0
    length: int = 0
    argument: int = 0
    imm: int = 0
    has_imm: int = 0
    solicited: int = 0

    def words(self):
        """(va, key, imm) of the packet that carries it."""
        data = MESSAGE_END.pack(**{name: getattr(self, name) for name in _FIELDS})
        return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:12], "big"), self.imm

    @property
    def slot(self):
        """Slot of the mailbox."""
        return self.argument & 0xFFFF

    @property
    def targets(self):
        """How many targets are in it."""
        return self.argument >> 16

    @property
    def value(self):
        """Of an ATOMIC_RESULT."""
        return self.argument << 32 | self.imm


def message_end(va, key, imm):
    """:class:`MessageEnd` of a packet without payload that has an immediate."""
    fields = MESSAGE_END.unpack(va.to_bytes(8, "big") + key.to_bytes(4, "big") + imm.to_bytes(4, "big"))
    return MessageEnd(*(getattr(fields, name) for name in
                        ("kind", "sequence", "length", "argument", "imm", "has_imm", "solicited")))


def place(slot, targets=0):
    """``argument`` that names a slot and how many targets are in it."""
    return targets << 16 | slot
