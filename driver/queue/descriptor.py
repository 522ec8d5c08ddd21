"""WORK descriptors of one connection."""

from weft.hdl.contract import abi

from .words import place, words

_WORDS = words(abi.WORK, ("phase", 64), "local_va", "lkey", "remote_va", "rkey", "psn", ("length", 64), "imm", "dst_ip",
               ("dst_mac", 64))
_DATA_WORDS = words(abi.INLINE_DATA, ("phase", 64), "psn")
_PSN_MASK = (1 << abi.WORK.by_name["psn"].width) - 1
_OPCODE, _ACK_REQ, _RETRANSMIT, _INLINE = (
    place(abi.WORK, "phase", 64, name)[0] for name in ("opcode", "ack_req", "retransmit", "inline"))
_RSN = place(abi.WORK, "length", 64, "rsn")[0]


def _field(layout, name):
    """The bytes of a field."""
    at = layout.offset_of(name) // 8
    return slice(at, at + layout.by_name[name].width // 8)


_HEAD, _REST = _field(abi.WORK_INLINE, "data"), _field(abi.INLINE_DATA, "data")


class Descriptors:
    """From WORK fields to ring entries; what is the same in all of them is packed once.

    Parameters
    ----------
    connection
        Its WORK fields: ``pmtu, sqpn, dqpn, dst_mac, dst_ip, sport``.
    """

    def __init__(self, **connection):
        self._head, *_, self._sport, _, self._ip, self._mac = _WORDS.unpack(abi.WORK.pack(**connection))
        self._data_head, _ = _DATA_WORDS.unpack(
            abi.INLINE_DATA.pack(opcode=abi.WorkOpcode.INLINE_DATA, sqpn=connection["sqpn"]))

    def pack_writes(self, writes):
        """The entries of whole :class:`~weft.driver.protocol.segment.PlainWrite`."""
        pack, mac, ip, sport = _WORDS.pack, self._mac, self._ip, self._sport
        going_on = self._head | abi.WorkOpcode.WRITE << _OPCODE
        last = going_on | 1 << _ACK_REQ
        return [pack(last if write.last else going_on, write.local_va, write.lkey, write.remote_va, write.rkey,
                     write.psn & _PSN_MASK, sport | write.length, 0, ip, mac) for write in writes]

    def pack(self, fields):
        """The descriptor with these fields, as :meth:`~weft.driver.protocol.segment.Piece.work` makes them: an entry,
        or two if it brings more payload than fits the first."""
        head = self._head | fields["opcode"] << _OPCODE | fields["ack_req"] << _ACK_REQ
        rsn = fields.get("rsn")
        if rsn is not None:
            head |= 1 << _RETRANSMIT
        inline = fields.get("inline")
        if inline is not None:
            head |= 1 << _INLINE
        entry = _WORDS.pack(head, fields["local_va"], fields["lkey"], fields["remote_va"], fields["rkey"],
                            fields["psn"], self._sport | (rsn or 0) << _RSN | fields["length"], fields["imm"],
                            self._ip, self._mac)
        return entry if inline is None else self._with_payload(entry, fields["psn"], inline)

    def _with_payload(self, entry, psn, payload):
        """A WORK_INLINE, behind the INLINE_DATA that it needs for as much payload."""
        first = payload[:abi.INLINE_HEAD_BYTES].ljust(abi.INLINE_HEAD_BYTES, b"\0")
        entry = entry[:_HEAD.start] + first + entry[_HEAD.stop:]
        if len(payload) <= abi.INLINE_HEAD_BYTES:
            return entry
        before = _DATA_WORDS.pack(self._data_head, psn)
        rest = payload[abi.INLINE_HEAD_BYTES:].ljust(abi.INLINE_MAX - abi.INLINE_HEAD_BYTES, b"\0")
        return before[:_REST.start] + rest + before[_REST.stop:] + entry
