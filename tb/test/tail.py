"""Packets that only a probe can find, counted from the frames on the link."""

from collections import Counter, defaultdict

from weft.hdl.contract import abi, wire


class Tail:
    """Monitors the frames of a sender and the loss reports of its receiver, for all QPs.

    Only a probe can find the last originals before it, if all of them were lost, and retransmissions that were lost
    while none of a later node arrived.

    Attributes
    ----------
    packets : int
        Number of such packets.
    """

    def __init__(self):
        self.packets = 0
        self._originals, self._again, self._nodes = Counter(), defaultdict(list), defaultdict(list)     # by QPN
        self._arrived = {}

    def sent(self, frame, lost):
        """Process a frame of the sender: data, retransmission or probe; others are ignored."""
        header = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
        opcode, qpn = header.opcode, header.dest_qp
        if opcode == wire.Opcode.PROBE:
            self.packets += self._originals.pop(qpn, 0)
            newest = max((rsn for rsn in self._nodes[qpn] if rsn <= self._arrived.get(qpn, -1)), default=0)
            self.packets += sum(rsn >= newest for rsn in self._again.pop(qpn, []))
        elif opcode in wire.RETX_OPCODES:
            rsn = wire.RSNH.unpack(frame[wire.RETH_OFFSET + wire.RETH.size_bytes:]).rsn
            if lost:
                self._again[qpn].append(rsn)
            else:
                self._arrived[qpn] = rsn
        elif opcode in wire.DATA_OPCODES:
            self._originals[qpn] = self._originals[qpn] + 1 if lost else 0

    def answered(self, frame):
        """Process a frame of the receiver: only loss reports are used."""
        if wire.BTH.unpack(frame[wire.BTH_OFFSET:]).opcode == wire.Opcode.LOSS_REPORT:
            node = abi.NODE.unpack(frame[wire.header_bytes(wire.Opcode.LOSS_REPORT):])
            self._nodes[node.qpn].append(node.rsn)
