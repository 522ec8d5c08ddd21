"""WORK descriptors of one connection."""

from weft.hdl.contract import abi

from .words import place, words

_WORDS = words(abi.WORK, ("phase", 64), "local_va", "lkey", "remote_va", "rkey", "psn", ("length", 64), "imm", "dst_ip",
               ("dst_mac", 64))
_DATA_WORDS = words(abi.INLINE_DATA, ("phase", 64), "psn")
_OPCODE, _ACK_REQ, _RETRANSMIT, _INLINE, _PACED = (
    place(abi.WORK, "phase", 64, name)[0] for name in ("opcode", "ack_req", "retransmit", "inline", "paced"))
_RSN, _RSN_MASK = place(abi.WORK, "length", 64, "rsn")[0], (1 << abi.WORK.by_name["rsn"].width) - 1


def _field(layout, name):
    """Return the slice of a field's bytes."""
    at = layout.offset_of(name) // 8
    return slice(at, at + layout.by_name[name].width // 8)


_HEAD, _REST = _field(abi.WORK_INLINE, "data"), _field(abi.INLINE_DATA, "data")


class Descriptors:
    """Encoder of work into ring entries. The constant part is packed once.

    Parameters
    ----------
    connection
        Its WORK fields: ``pmtu, sqpn, dqpn, dst_mac, dst_ip, sport, ect``.
    paced : bool
        The card paces the packets.
    """

    def __init__(self, *, paced=False, **connection):
        connection["paced"] = int(paced)
        head, *_, self._sport, _, self._ip, self._mac = _WORDS.unpack(abi.WORK.pack(**connection))
        self._heads = [[head | opcode << _OPCODE | ack_req << _ACK_REQ for ack_req in range(2)]
                       for opcode in (abi.WorkOpcode.WRITE, abi.WorkOpcode.WRITE_IMM)]
        self._data_head, _ = _DATA_WORDS.unpack(
            abi.INLINE_DATA.pack(opcode=abi.WorkOpcode.INLINE_DATA, sqpn=connection["sqpn"]))

    def pack(self, works):
        """Return the descriptors of a list of :class:`~weft.driver.protocol.segment.Work`.

        Each is one entry, or two if its inline payload does not fit the first.
        """
        pack, heads, sport, ip, mac, packed = _WORDS.pack, self._heads, self._sport, self._ip, self._mac, []
        for work in works:
            psn, length, imm, inline = work.psn & 0xFFFF_FFFF, work.length, work.imm, work.inline
            head = heads[imm is not None][work.last]
            if work.rsn is not None:
                head |= 1 << _RETRANSMIT
                length |= (work.rsn & _RSN_MASK) << _RSN
            if inline:
                head |= 1 << _INLINE
            entry = pack(head, work.local_va, work.lkey, work.remote_va, work.rkey, psn, sport | length, imm or 0, ip,
                         mac)
            packed.append(self._with_payload(entry, psn, inline) if inline else entry)
        return packed

    def _with_payload(self, entry, psn, payload):
        """Return a WORK_INLINE entry, preceded by the INLINE_DATA entry that a longer payload needs."""
        first = payload[:abi.INLINE_HEAD_BYTES].ljust(abi.INLINE_HEAD_BYTES, b"\0")
        entry = entry[:_HEAD.start] + first + entry[_HEAD.stop:]
        if len(payload) <= abi.INLINE_HEAD_BYTES:
            return entry
        before = _DATA_WORDS.pack(self._data_head, psn)
        rest = payload[abi.INLINE_HEAD_BYTES:].ljust(abi.INLINE_MAX - abi.INLINE_HEAD_BYTES, b"\0")
        return before[:_REST.start] + rest + before[_REST.stop:] + entry
