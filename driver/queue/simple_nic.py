"""Simple NIC: raw Ethernet frames out and in, among them the control frames of the protocol."""

import collections
from types import SimpleNamespace

from weft.hdl import abi, wire

from ..terms.errors import InvalidValue, QueueFull


class SimpleNic:
    """NIC_TX and NIC_RX with their frame slots.

    Parameters
    ----------
    device : Device
    tx, rx : HostToCardRing, CardToHostRing
    slot_log2 : int
        log2 of the bytes of a slot, 9 to 14.

    Attributes
    ----------
    rx_slots : DmaBuffer
        Where the card puts frames.
    """

    QUEUED_MAX = 256

    def __init__(self, device, tx, rx, *, slot_log2=11):
        self.device, self.tx, self.rx = device, tx, rx
        self.slot_bytes = 1 << slot_log2
        self.tx_slots = device.alloc(tx.depth * self.slot_bytes, align=4096)
        self.rx_slots = device.alloc(rx.depth * self.slot_bytes, align=4096)
        self._queue = collections.deque()      # (owner, frame)
        self._waiting = collections.Counter()  # frames of each owner in it

    def start(self):
        """Tell the card of the slots."""
        self.device.write64(abi.REGISTER["nic_rx_buffer"].offset, self.rx_slots.physical(0))
        self.device.write32(abi.REGISTER["nic_rx_slot_log2"].offset, self.slot_bytes.bit_length() - 1)

    def forget(self):
        """Nothing is queued any more: the card was reset."""
        self._queue.clear()
        self._waiting.clear()

    def send(self, frame, owner=None):
        """Queue a frame (without FCS). How many wait is counted for each ``owner`` by itself.

        Raises
        ------
        ValueError
            If it is shorter than an Ethernet header or longer than a slot.
        BufferError
            If ``QUEUED_MAX`` frames of this owner wait.
        """
        if not wire.ETH.size_bytes <= len(frame) <= self.slot_bytes:
            raise InvalidValue(f"a frame of {len(frame)} bytes; {wire.ETH.size_bytes} to {self.slot_bytes} can be sent")
        if self._waiting[owner] >= self.QUEUED_MAX:
            raise QueueFull(f"{self.QUEUED_MAX} frames wait for the NIC_TX ring")
        self._queue.append((owner, frame))
        self._waiting[owner] += 1

    @property
    def busy(self):
        return bool(self._queue)

    def flush(self):
        """Hand queued frames to the card as far as the ring has room."""
        while self._queue and self.tx.room:
            owner, frame = self._queue.popleft()
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]
            at = self.tx.prod % self.tx.depth * self.slot_bytes
            self.tx_slots.write(at, frame)
            self.tx.push(abi.NIC_TX.pack(address=self.tx_slots.physical(at), length=len(frame)))
        self.tx.ring_doorbell()

    def poll(self):
        """Frames that arrived, as (entry, bytes)."""
        frames, first = [], self.rx.prod
        for i, entry in enumerate(self.rx.poll()):
            entry = abi.NIC_RX.unpack(entry)
            frames.append((entry, self.rx_slots.read((first + i) % self.rx.depth * self.slot_bytes, entry.length)))
        self.rx.release()
        return frames

    def close(self):
        self.device.free(self.tx_slots)
        self.device.free(self.rx_slots)


def parse_control(frame):
    """A RoCEv2 frame whose ICRC the card found right, as a namespace; None if it is not one of the control frames.

    Fields: ``src_ip, dest_qp, opcode, psn`` and, as the opcode has them, ``syndrome, msn, rsn, limited, serial,
    payload``.
    """
    if len(frame) < wire.RETH_OFFSET + wire.ICRC_BYTES:
        return None
    ip = wire.IPV4.unpack(frame[wire.ETH.size_bytes:])
    udp = wire.UDP.unpack(frame[wire.ETH.size_bytes + wire.IPV4.size_bytes:])
    bth = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    extensions = wire.EXTENSIONS.get(bth.opcode)
    if extensions is None or bth.opcode in wire.DATA_OPCODES:
        return None
    end = wire.BTH_OFFSET - wire.UDP.size_bytes + udp.length - wire.ICRC_BYTES - bth.pad_count
    at = wire.RETH_OFFSET
    if not at + sum(h.size_bytes for h in extensions) <= end <= len(frame):
        return None
    fields = SimpleNamespace(src_ip=ip.src, dest_qp=bth.dest_qp, opcode=bth.opcode, psn=bth.psn)
    for header in extensions:
        vars(fields).update(vars(header.unpack(frame[at:])))
        at += header.size_bytes
    fields.payload = bytes(frame[at:end])
    return fields


def control_extension(frame):
    """Packed extension header of a :class:`~weft.driver.protocol.control.ControlFrame`."""
    if frame.opcode is wire.Opcode.ACKNOWLEDGE:
        return wire.AETH.pack(syndrome=frame.syndrome, msn=frame.msn & 0xFF_FFFF)
    if frame.opcode is wire.Opcode.RECEIVE_LIMIT:
        return wire.LIMH.pack(limited=int(frame.limited),
                              serial=frame.serial % (1 << wire.LIMIT_SERIAL_BITS))
    return wire.RSNH.pack(rsn=frame.rsn & 0xFF_FFFF)
