"""WORK descriptors of one connection."""

from weft.hdl import abi

from .words import place, words

_WORDS = words(abi.WORK, ("phase", 64), "local_va", "remote_va", "lkey", "rkey", "length", "psn", "imm", ("rsn", 32),
               ("dst_mac", 64), "dst_ip")
_PSN_MASK = (1 << abi.WORK.by_name["psn"].width) - 1
_OPCODE, _ACK_REQ, _RETRANSMIT = (place(abi.WORK, "phase", 64, name)[0] for name in ("opcode", "ack_req", "retransmit"))


class Descriptors:
    """From WORK fields to ring entries; what is the same in all of them is packed once.

    Parameters
    ----------
    connection
        Its WORK fields: ``pmtu, sqpn, dqpn, dst_mac, dst_ip, sport``.
    """

    def __init__(self, **connection):
        self._head, *_, self._mac, self._ip = _WORDS.unpack(abi.WORK.pack(**connection))

    def pack_writes(self, writes):
        """The entries of whole :class:`~weft.driver.protocol.segment.PlainWrite`."""
        pack, mac, ip = _WORDS.pack, self._mac, self._ip
        going_on = self._head | abi.WorkOpcode.WRITE << _OPCODE
        last = going_on | 1 << _ACK_REQ
        return [pack(last if write.last else going_on, write.local_va, write.remote_va, write.lkey, write.rkey,
                     write.length, write.psn & _PSN_MASK, 0, 0, mac, ip) for write in writes]

    def pack(self, fields):
        """The entry with these fields, as :meth:`~weft.driver.protocol.segment.Piece.work` makes them."""
        head = self._head | fields["opcode"] << _OPCODE | fields["ack_req"] << _ACK_REQ
        rsn = fields.get("rsn")
        if rsn is not None:
            head |= 1 << _RETRANSMIT
        return _WORDS.pack(head, fields["local_va"], fields["remote_va"], fields["lkey"], fields["rkey"],
                           fields["length"], fields["psn"], fields["imm"], rsn or 0, self._mac, self._ip)
