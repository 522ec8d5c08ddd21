"""Message end: contents of a packet without payload."""

import enum
from dataclasses import dataclass

from weft.hdl.contract.layout import Field, Layout


class Kind(enum.IntEnum):
    """Kinds of messages. Those in :data:`REQUESTS` are counted; the others are responses and mailbox messages."""

    WRITE_IMM = 0          # data was written; the immediate consumes a receive request
    SEND = 1               # the data is in the mailbox
    SEND_REQUEST = 2       # data waits for a grant
    READ = 3               # source and destinations are in the mailbox
    FETCH_AND_ADD = 4      # operands are in the mailbox
    COMPARE_AND_SWAP = 5
    MAILBOX_ASK = 8        # reports the sender's mailbox, and requests the receiver's
    MAILBOX = 9            # response
    GRANT = 10             # destinations of a send's data are in the mailbox
    SEND_DATA = 11         # the data of the send was written
    READ_DATA = 12         # the data of a read was written
    ATOMIC_RESULT = 13     # old value
    WRITE = 16             # a plain write, whose last packet is its end: no MESSAGE_END has this kind


REQUESTS = frozenset({Kind.WRITE, Kind.WRITE_IMM, Kind.SEND, Kind.SEND_REQUEST, Kind.READ, Kind.FETCH_AND_ADD,
                      Kind.COMPARE_AND_SWAP})
ATOMICS = frozenset({Kind.FETCH_AND_ADD, Kind.COMPARE_AND_SWAP})
SEQUENCE_BITS = 24

MESSAGE_END = Layout("MESSAGE_END", "End of a message: address, key and immediate of a write without payload.", [
    Field("kind", 4, "Kind of message.", Kind), Field("solicited", 1, "The receiver's event was requested."),
    Field("has_imm", 1, "`imm` is the program's."), Field("_r0", 2),
    Field("sequence", SEQUENCE_BITS, "Number of the request among those of its sender; answers have that of theirs."),
    Field("length", 32, "Bytes of the message."),
    Field("argument", 32, "Of MAILBOX and MAILBOX_ASK the key; of ATOMIC_RESULT the high half of the value; else the "
          "slot of the mailbox in bits 15:0, and how many targets are in it in 31:16."),
    Field("imm", 32, "Immediate; of ATOMIC_RESULT the low half of the value; of MAILBOX_ASK the first PSN that its "
          "sender receives, for a peer that was not notified before.")], size_bytes=16, byteorder="big")
_FIELDS = [f.name for f in MESSAGE_END.fields if not f.name.startswith("_")]


@dataclass(slots=True)
class MessageEnd:
    """Fields of a MESSAGE_END. ``kind`` may be undefined. ``sequence`` is None if a packet with data ends the message.
    """

    kind: Kind
    sequence: int | None = 0
    length: int = 0
    argument: int = 0
    imm: int = 0
    has_imm: int = 0
    solicited: int = 0

    def words(self):
        """Return (va, key, imm) of the packet that transfers the message end."""
        data = MESSAGE_END.pack(**{name: getattr(self, name) for name in _FIELDS})
        return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:12], "big"), self.imm

    @property
    def slot(self):
        """Slot of the mailbox."""
        return self.argument & 0xFFFF

    @property
    def targets(self):
        """Number of targets in the slot."""
        return self.argument >> 16

    @property
    def value(self):
        """Value of an ATOMIC_RESULT."""
        return self.argument << 32 | self.imm


def message_end(va, key, imm):
    """Return the :class:`MessageEnd` of a packet without payload that has an immediate."""
    fields = MESSAGE_END.unpack(va.to_bytes(8, "big") + key.to_bytes(4, "big") + imm.to_bytes(4, "big"))
    return MessageEnd(*(getattr(fields, name) for name in
                        ("kind", "sequence", "length", "argument", "imm", "has_imm", "solicited")))


def place(slot, targets=0):
    """Return the ``argument`` for a slot and the number of targets in it."""
    return targets << 16 | slot
