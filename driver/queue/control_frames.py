"""Encoding of control frames."""

import zlib
from types import SimpleNamespace

from weft.hdl.contract import wire

from ..protocol.aeth import PathQuery
from .words import place, words

_IP_AT, _UDP_AT = wire.ETH.size_bytes, wire.ETH.size_bytes + wire.IPV4.size_bytes
_IP, _UDP, _SPORT = words(wire.IPV4, "src"), words(wire.UDP, "length"), words(wire.UDP, "sport")
_BTH = words(wire.BTH, "opcode", ("solicited", 8), ("ecn", 32), ("ack_req", 32))
_PAD_SHIFT, _PAD_MASK = place(wire.BTH, "solicited", 8, "pad_count")
_QPN_MASK, _PSN_MASK = (1 << wire.QPN_BITS) - 1, (1 << wire.PSN_BITS) - 1
_AETH = words(wire.AETH, ("syndrome", 32))
_SYNDROME_SHIFT, _ = place(wire.AETH, "syndrome", 32, "syndrome")
_MSN_MASK = place(wire.AETH, "syndrome", 32, "msn")[1]
_PSN_AT = wire.BTH_OFFSET + wire.BTH.offset_of("psn") // 8
_ACKNOWLEDGE = wire.Opcode.ACKNOWLEDGE
PATH_QUERIES = frozenset(PathQuery)
_OPCODES = {int(opcode): opcode for opcode in wire.EXTENSIONS if opcode not in wire.DATA_OPCODES}
_EXTENSION_BYTES = {opcode: sum(h.size_bytes for h in wire.EXTENSIONS[opcode]) for opcode in _OPCODES.values()}


def parse_control(frame):
    """Parse a RoCEv2 frame with a correct ICRC into a namespace. Return None if it is not a control frame.

    Fields: ``src_ip, dest_qp, opcode, psn`` and, depending on the opcode, ``syndrome, msn, rsn, limited, serial,
    payload``; of a :class:`~weft.driver.protocol.aeth.PathQuery` also ``sport``.
    """
    if len(frame) < wire.RETH_OFFSET + wire.ICRC_BYTES:
        return None
    number, flags, qpn, psn = _BTH.unpack_from(frame, wire.BTH_OFFSET)
    opcode = _OPCODES.get(number)
    if opcode is None:
        return None
    end = _UDP_AT + _UDP.unpack_from(frame, _UDP_AT)[0] - wire.ICRC_BYTES - (flags >> _PAD_SHIFT & _PAD_MASK)
    at = wire.RETH_OFFSET
    if not at + _EXTENSION_BYTES[opcode] <= end <= len(frame):
        return None
    fields = SimpleNamespace(src_ip=_IP.unpack_from(frame, _IP_AT)[0], dest_qp=qpn & _QPN_MASK, opcode=opcode,
                             psn=psn & _PSN_MASK)
    if opcode is _ACKNOWLEDGE:
        word = _AETH.unpack_from(frame, at)[0]
        fields.syndrome, fields.msn = word >> _SYNDROME_SHIFT, word & _MSN_MASK
        if fields.syndrome in PATH_QUERIES:
            fields.sport = _SPORT.unpack_from(frame, _UDP_AT)[0]
        at += wire.AETH.size_bytes
    else:
        for header in wire.EXTENSIONS[opcode]:
            vars(fields).update(vars(header.unpack(frame[at:])))
            at += header.size_bytes
    fields.payload = bytes(frame[at:end])
    return fields


def control_extension(frame):
    """Return the packed extension header of a :class:`~weft.driver.protocol.control.ControlFrame`."""
    if frame.opcode is _ACKNOWLEDGE:
        return _AETH.pack(frame.syndrome << _SYNDROME_SHIFT | frame.msn & _MSN_MASK)
    if frame.opcode is wire.Opcode.CNP:
        return wire.CNPH.pack()
    if frame.opcode is wire.Opcode.RECEIVE_LIMIT:
        return wire.LIMH.pack(limited=int(frame.limited),
                              serial=frame.serial % (1 << wire.LIMIT_SERIAL_BITS))
    return wire.RSNH.pack(rsn=frame.rsn & 0xFF_FFFF)


class ControlFrames:
    """Builder of the control frames of one connection. The constant part of each kind is built once.

    Parameters
    ----------
    connection
        Arguments of :func:`~weft.hdl.contract.wire.build_frame`: ``dst_mac, src_mac, src_ip, dst_ip, sport, dest_qp``.
    """

    def __init__(self, **connection):
        self._connection = connection
        self._begun = {}    # (opcode, bytes of payload) -> (bytes before the PSN, their ICRC)

    def build(self, frame):
        """Return the bytes of a :class:`~weft.driver.protocol.control.ControlFrame`, with ICRC."""
        kind = (frame.opcode, len(frame.payload))
        if kind not in self._begun:
            self._begun[kind] = self._begin(*kind)
        begin, crc = self._begun[kind]
        rest = (frame.psn & _PSN_MASK).to_bytes(3, "big") + control_extension(frame) + frame.payload
        rest += bytes(-len(frame.payload) % 4)
        return begin + rest + zlib.crc32(rest, crc).to_bytes(wire.ICRC_BYTES, "little")

    def _begin(self, opcode, length):
        whole = wire.build_frame(opcode=opcode, psn=0, extensions=bytes(_EXTENSION_BYTES[opcode]),
                                 payload=bytes(length), **self._connection)
        begin = whole[:_PSN_AT]
        return begin, int.from_bytes(wire.icrc(begin), "little")
