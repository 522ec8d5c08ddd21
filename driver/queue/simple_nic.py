"""Simple NIC: sends and receives raw Ethernet frames, including control frames."""

import collections
from typing import NamedTuple

from weft.hdl.contract import abi, wire

from ..terms.errors import InvalidValue, QueueFull
from .words import place, words

_NIC_TX = words(abi.NIC_TX, "address", "length")
_NUMBER, _NUMBERS = place(abi.NIC_TX_INLINE, "phase", 64, "number")
_LENGTH, _ = place(abi.NIC_TX_INLINE, "phase", 64, "length")
_OPCODE, _ = place(abi.NIC_TX_INLINE, "phase", 64, "opcode")
_BODY_AT = abi.NIC_TX_INLINE.offset_of("data") // 8

_NIC_RX = words(abi.NIC_RX, ("phase", 8), "length", "time_ns")
_ROCE, _HOST = (place(abi.NIC_RX, "phase", 8, name)[0] for name in ("roce", "host"))


def _inline(frame, number):
    """Return the entries of a frame of at most ``abi.FRAME_INLINE_MAX`` bytes: one, or two if it needs them."""
    number = (number & _NUMBERS) << _NUMBER
    head, rest = frame[:abi.FRAME_HEAD_BYTES], frame[abi.FRAME_HEAD_BYTES:]
    entry = _entry(abi.NicTxOpcode.INLINE << _OPCODE | number | len(frame) << _LENGTH, head)
    return _entry(abi.NicTxOpcode.DATA << _OPCODE | number, rest) + entry if rest else entry


def _entry(word, body):
    return word.to_bytes(_BODY_AT, "little") + bytes(body).ljust(abi.BLOCK_BYTES - _BODY_AT, b"\0")


class ReceivedFrame(NamedTuple):
    """Fields of a received frame's NIC_RX entry."""

    roce: int
    host: int
    length: int
    time_ns: int


class SimpleNic:
    """NIC_TX and NIC_RX rings with their frame slots.

    Parameters
    ----------
    device : Device
    tx, rx : HostToCardRing, CardToHostRing
    slot_log2 : int
        log2 of the bytes of a slot, 9 to 14.
    inline : bool
        The card takes short frames in their descriptors.

    Attributes
    ----------
    queue : deque of (owner, bytes, callable or None, bool)
        Frames that wait for ring space, the functions to call when the card has sent them, and whether they are in
        their descriptors.
    rx_slots : DmaBuffer
        Slots that the card writes received frames to.
    """

    QUEUED_MAX = 256

    def __init__(self, device, tx, rx, *, slot_log2=11, inline=False):
        self.device, self.tx, self.rx = device, tx, rx
        self._inline_max = abi.FRAME_INLINE_MAX if inline else 0
        self.slot_bytes = 1 << slot_log2
        self.tx_slots = device.alloc(tx.depth * self.slot_bytes, align=4096)
        self.rx_slots = device.alloc(rx.depth * self.slot_bytes, align=4096)
        self.queue = collections.deque()
        self._waiting = {}                     # owner -> its frames in `queue`

    def start(self):
        """Configure the card's receive slots."""
        self.device.write64(abi.REGISTER["nic_rx_buffer"].offset, self.rx_slots.physical(0))
        self.device.write32(abi.REGISTER["nic_rx_slot_log2"].offset, self.slot_bytes.bit_length() - 1)

    def forget(self):
        """Drop all queued frames: the card was reset."""
        self.queue.clear()
        self._waiting.clear()

    def send(self, frame, owner=None, sent=None, at_once=False):
        """Queue a frame (without FCS). The limit of queued frames applies to each ``owner`` separately.

        ``sent()`` is called when the card has sent the frame, unless the card is reset before. A frame that leaves
        ``at_once`` is in its descriptor if it is short, and pushed to an idle ring: a register write for each of its
        entries, but no read of host memory.

        Raises
        ------
        ValueError
            If it is shorter than an Ethernet header or longer than a slot.
        BufferError
            If ``QUEUED_MAX`` frames of this owner wait.
        """
        if not wire.ETH.size_bytes <= len(frame) <= self.slot_bytes:
            raise InvalidValue(f"a frame of {len(frame)} bytes; {wire.ETH.size_bytes} to {self.slot_bytes} can be sent")
        waiting = self._waiting.get(owner, 0)
        if waiting >= self.QUEUED_MAX:
            raise QueueFull(f"{self.QUEUED_MAX} frames wait for the NIC_TX ring")
        self.queue.append((owner, frame, sent, at_once and len(frame) <= self._inline_max))
        self._waiting[owner] = waiting + 1
        if at_once:
            self.flush(pushes=True)

    @property
    def busy(self):
        """True if frames are in the card or wait for ring space."""
        return bool(self.queue) or self.tx.prod != self.tx.cons

    def flush(self, pushes=False):
        """Pass queued frames to the card as far as the ring has space."""
        if not self.queue:
            return
        while self.queue and self.tx.space > self.queue[0][3]:     # a frame in descriptors may need two
            owner, frame, sent, inline = self.queue.popleft()
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]
            if inline:
                self.tx.push(_inline(frame, self.tx.prod), sent)
                continue
            at = self.tx.prod % self.tx.depth * self.slot_bytes
            self.tx_slots.write(at, frame)
            self.tx.push(_NIC_TX.pack(self.tx_slots.physical(at), len(frame)), sent)
        self.tx.ring_doorbell(pushes)

    def poll(self):
        """Return the frames that arrived, at most a ring of them, as (:class:`ReceivedFrame`, bytes)."""
        frames, depth, first = [], self.rx.depth, self.rx.prod
        while self.rx.prod - first < depth and (entries := self.rx.poll()):
            for i, entry in enumerate(entries, self.rx.prod - len(entries)):
                flags, length, time_ns = _NIC_RX.unpack(entry)
                frame = self.rx_slots.read(i % depth * self.slot_bytes, length)
                frames.append((ReceivedFrame(flags >> _ROCE & 1, flags >> _HOST & 1, length, time_ns), frame))
            self.rx.release()
        return frames

    def close(self):
        self.device.free(self.tx_slots)
        self.device.free(self.rx_slots)
