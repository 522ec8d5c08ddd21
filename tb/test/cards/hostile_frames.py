"""Bad frames of every kind, each with the required reaction of the card."""

from dataclasses import dataclass

from weft.hdl.contract import wire
from weft.hdl.contract.abi import Reason, make_qpn, split_qpn
from weft.hdl.contract.params import preset
from weft.hdl.contract.wire import Opcode
from weft.tb.sim.hostile.fuzzed_frames import edit, seal
from weft.tb.sim.pair.settings import IP, MAC

IP_AT, UDP_AT = wire.ETH.size_bytes, wire.ETH.size_bytes + wire.IPV4.size_bytes
BROADCAST = (1 << 48) - 1
QPN_WIDTH = preset("test").qpn_width
WRAP = 1 << 64
CONTROL = (*sorted(wire.DRIVER_OPCODES), Opcode.PROBE)


@dataclass(frozen=True)
class Case:
    """A frame, and its required effects.

    Attributes
    ----------
    drop : Reason or None
        The counter that rises by one; no other does.
    reported : bool
        The driver gets an ERROR report with this reason.
    raw : bool
        The frame is delivered as a raw frame.
    bad : bool
        The MAC marks it bad.
    """

    name: str
    frame: bytes
    drop: Reason | None = None
    reported: bool = False
    raw: bool = False
    bad: bool = False


@dataclass(frozen=True)
class Target:
    """Data about card B that an attacker has: a QP, its next PSN, and a memory region it may write."""

    qpn: int
    psn: int
    rkey: int
    va: int
    length: int


def data_frame(target, *, opcode=Opcode.WRITE_ONLY, payload=bytes(range(64)), offset=0, **changes):
    """Return a valid frame for the target, with the ``changes``."""
    fields = {"dest_qp": target.qpn, "psn": target.psn, "va": (target.va + offset) % WRAP, "rkey": target.rkey,
              "dma_length": len(payload), "rsn": 0, "imm": 0, "ack_req": 0,
              "dst_mac": MAC["b"], "dst_ip": IP["b"], "src_ip": IP["a"]} | changes
    values = {"RETH": ("va", "rkey", "dma_length"), "RSNH": ("rsn",), "ImmDt": ("imm",)}
    extensions = b"".join(layout.pack(**{n: fields[n] for n in values.get(layout.name, ())})
                          for layout in wire.EXTENSIONS.get(opcode, ()))
    return wire.build_frame(
        opcode=opcode, dst_mac=fields["dst_mac"], src_mac=MAC["a"], src_ip=fields["src_ip"], dst_ip=fields["dst_ip"],
        sport=0xC000, dest_qp=fields["dest_qp"], psn=fields["psn"], ack_req=fields["ack_req"], payload=payload,
        extensions=extensions)


def control_frame(target, opcode, **changes):
    """Return a frame with an opcode of :data:`CONTROL` for the target, valid in itself."""
    return data_frame(target, opcode=opcode, payload=bytes(64 if opcode is Opcode.LOSS_REPORT else 0), **changes)


def _flip(frame, at, bit=0):
    spoiled = bytearray(frame)
    spoiled[at] ^= 1 << bit
    return bytes(spoiled)


def _resize(frame, ip=0, udp=0):
    """Return the frame with other lengths in its headers and a new ICRC."""
    ip_header, udp_header = wire.IPV4.unpack(frame[IP_AT:]), wire.UDP.unpack(frame[UDP_AT:])
    frame = edit(frame, wire.IPV4, IP_AT, total_length=ip_header.total_length + ip & 0xFFFF)
    return seal(edit(frame, wire.UDP, UDP_AT, length=udp_header.length + udp & 0xFFFF))


def truncated(target, payload_bytes=300):
    """Yield a valid frame cut at many lengths."""
    frame = data_frame(target, payload=bytes(payload_bytes))
    edges = {1, 13, 14, 33, 34, 41, 42, 53, 54, 57, 58, 59, 60, 61, 62, 63, 64, 65, 69, 70, 73, 74, 127, 128, 129, 200,
             255, 256, 257, len(frame) - 64, len(frame) - 4, len(frame) - 2, len(frame) - 1}
    for length in sorted(edges):
        # Without a complete UDP header it is not recognised as RoCE: any Ethernet frame is delivered.
        whole = wire.ETH.size_bytes <= length < wire.BTH_OFFSET
        yield Case(f"cut to {length} bytes", frame[:length], None if whole else Reason.TRUNCATED, raw=whole)


def spoiled(target):
    """Yield malformed frames; ``target`` is a QP with traffic, at its next PSN."""
    good = data_frame(target)
    yield Case("FCS wrong", good, Reason.BAD_FRAME, bad=True)
    yield Case("FCS wrong, empty", good[:60], Reason.BAD_FRAME, bad=True)
    for at in (-4, -1, wire.BTH_OFFSET + 11, wire.RETH_OFFSET, -12):
        yield Case(f"bit flipped in byte {at}", _flip(good, at), Reason.BAD_ICRC)
    yield Case("ICRC missing", _resize(good[:-4], ip=-4, udp=-4)[:-4] + bytes(4), Reason.BAD_ICRC)
    yield Case("IP longer", _resize(good, ip=4), Reason.TRUNCATED)
    yield Case("IP much longer", _resize(good, ip=30_000, udp=30_000), Reason.TRUNCATED)
    yield Case("IP length 0", edit(good, wire.IPV4, IP_AT, total_length=0), Reason.TRUNCATED)
    yield Case("IP length 65535", edit(good, wire.IPV4, IP_AT, total_length=0xFFFF), Reason.TRUNCATED)
    yield Case("IP shorter", _resize(good, ip=-4), Reason.LENGTH_MISMATCH)
    yield Case("UDP shorter", _resize(good, udp=-4), Reason.LENGTH_MISMATCH)
    yield Case("UDP longer", _resize(good, udp=4), Reason.LENGTH_MISMATCH)
    yield Case("IP and UDP shorter", _resize(good, ip=-4, udp=-4), Reason.LENGTH_MISMATCH)
    yield Case("bytes after the frame", good + bytes(4), Reason.LENGTH_MISMATCH)
    checksum = wire.IPV4.unpack(good[IP_AT:]).checksum
    for name, changes in (("wrong by one", {"checksum": checksum ^ 1}), ("zero", {"checksum": 0}),
                          ("wrong by its top bit", {"checksum": checksum ^ 1 << 15}),
                          ("of another TTL", {"checksum": checksum, "ttl": 63}),
                          ("of another TOS", {"checksum": checksum, "tos": 1})):
        yield Case(f"IP checksum {name}", edit(good, wire.IPV4, IP_AT, **changes), Reason.BAD_HEADER)
    yield Case("BTH version 1", seal(edit(good, wire.BTH, wire.BTH_OFFSET, version=1)), Reason.BAD_HEADER)
    yield Case("partition 0x1234", seal(edit(good, wire.BTH, wire.BTH_OFFSET, pkey=0x1234)), Reason.BAD_HEADER)
    yield Case("other MAC", data_frame(target, dst_mac=MAC["a"]), Reason.BAD_HEADER)
    yield Case("write to the broadcast address", data_frame(target, dst_mac=BROADCAST), Reason.BAD_HEADER)
    yield Case("other IP", data_frame(target, dst_ip=IP["a"]), Reason.BAD_HEADER)
    next_own = max(wire.EXTENSIONS) + 1
    for opcode in (0x00, 0x04, 0x06, 0x0C, 0x64, next_own, 0xFF):
        yield Case(f"opcode {opcode:#04x}", data_frame(target, opcode=opcode, payload=bytes(64)), Reason.UNKNOWN_OPCODE)
    yield Case("probe with payload", data_frame(target, opcode=Opcode.PROBE), Reason.LENGTH_MISMATCH)
    for qpn in (0, 1, 15, 1 << 23 | 15):
        yield Case(f"QP {qpn:#x}", data_frame(target, dest_qp=qpn), Reason.UNKNOWN_QP)
    yield Case("probe of QP 15", data_frame(target, opcode=Opcode.PROBE, dest_qp=15, payload=b""), Reason.UNKNOWN_QP)
    yield Case("frame of 16384 bytes", good[:14] + bytes(16384 - 14), Reason.FRAME_TOO_LONG)
    yield Case("frame of 40000 bytes", good[:14] + bytes(40000 - 14), Reason.FRAME_TOO_LONG)


def forbidden(target, *, other_pd, read_only, gone, closed_qpn):
    """Yield valid frames without permission; ``target.psn`` is one that the QP has acknowledged.

    ``other_pd`` and ``read_only`` are (rkey, va) of MRs of card B, ``gone`` that of a deregistered one. ``closed_qpn``
    is a QP that forbids writes.
    """
    def case(name, reason, **changes):
        return Case(name, data_frame(target, **changes), reason, reported=True)

    length = target.length
    yield case("key of no MR", Reason.BAD_KEY, rkey=30 << 8 | 0x55)
    yield case("key 0", Reason.BAD_KEY, rkey=0)
    yield case("key beyond the table", Reason.BAD_KEY, rkey=target.rkey | 1 << 13)
    yield case("key far beyond the table", Reason.BAD_KEY, rkey=target.rkey | 1 << 31)
    yield case("tag wrong", Reason.BAD_KEY, rkey=target.rkey ^ 1)
    keys = {other_pd[0], read_only[0], target.rkey}
    mixed = {index & ~0xFF | tag & 0xFF for index in keys for tag in keys} - keys
    yield case("tag of another index", Reason.BAD_KEY, rkey=min(mixed, default=target.rkey ^ 2))
    yield case("old key", Reason.BAD_KEY, rkey=gone[0], va=gone[1])
    yield case("retransmission with a wrong tag", Reason.BAD_KEY, opcode=Opcode.RETX_WRITE, rkey=target.rkey ^ 0x80)
    for offset, why in ((-1, "one byte before"), (-64, "just before"), (length - 63, "one byte over the end"),
                        (length, "after the end"), (length + 4096, "a page after"), (1 << 48, "2^48 further"),
                        (-(1 << 48), "2^48 before"), (1 << 63, "2^63 further")):
        yield case(why, Reason.OUT_OF_RANGE, offset=offset)
    yield case("over the end of 2^64", Reason.OUT_OF_RANGE, va=WRAP - 32)
    yield case("last byte of 2^64", Reason.OUT_OF_RANGE, va=WRAP - 1, payload=b"x")
    yield case("address 0", Reason.OUT_OF_RANGE, va=0)
    yield case("retransmission after the end", Reason.OUT_OF_RANGE, opcode=Opcode.RETX_WRITE_IMM, offset=length)
    yield case("MR of another domain", Reason.WRONG_PD, rkey=other_pd[0], va=other_pd[1])
    yield case("MR without permission", Reason.NO_PERMISSION, rkey=read_only[0], va=read_only[1])
    yield case("QP without permission", Reason.NO_PERMISSION, dest_qp=closed_qpn)
    for change in (-64, -1, 1, 4, 0xFFFF_FFFF - 64):
        yield case(f"RETH length {64 + change}", Reason.LENGTH_MISMATCH, dma_length=64 + change)
    yield case("4100 bytes", Reason.LENGTH_MISMATCH, payload=bytes(4100))
    yield case("9000 bytes", Reason.LENGTH_MISMATCH, payload=bytes(9000))
    frame = data_frame(target)
    yield Case("padding that is not there", seal(edit(frame, wire.BTH, wire.BTH_OFFSET, pad_count=3)),
               Reason.LENGTH_MISMATCH, reported=True)


def stale(target):
    """Yield valid frames that come too late; ``target.psn`` is one that the QP has acknowledged."""
    def retransmission(name, reason, **changes):
        return Case(name, data_frame(target, **{"opcode": Opcode.RETX_WRITE, **changes}), reason)

    yield Case("stale PSN", data_frame(target), Reason.STALE_PSN)
    yield Case("PSN of half a circle ago", data_frame(target, psn=target.psn - (1 << 22)), Reason.STALE_PSN)
    yield retransmission("stale PSN, retransmitted", Reason.STALE_PSN)
    index, generation = split_qpn(target.qpn, QPN_WIDTH)
    for name, incarnation in (("before", generation - 1), ("after", generation + 1),
                              ("256 incarnations later", generation + 256),
                              ("of another time", generation ^ 1 << wire.QPN_BITS - 1 - QPN_WIDTH)):
        other = {"dest_qp": make_qpn(index, incarnation, QPN_WIDTH)}
        for opcode in sorted(wire.DATA_OPCODES):
            yield Case(f"{opcode.name} for the incarnation {name}", data_frame(target, opcode=opcode, **other),
                       Reason.STALE_GENERATION)
        for opcode in CONTROL:
            yield Case(f"{opcode.name} for the incarnation {name}", control_frame(target, opcode, **other),
                       Reason.STALE_GENERATION)
        yield Case(f"nothing at all for the incarnation {name}",
                   data_frame(target, psn=target.psn + 12 & 0xFF_FFFF, payload=b"", rkey=0, ack_req=1, **other),
                   Reason.STALE_GENERATION)


def of_unknown_peers(target, address):
    """Yield frames that would be valid from the peer: ``target`` is a QP at its next PSN, or anywhere ahead."""
    jump = {"psn": (target.psn + (1 << 20)) % (1 << 24), "payload": b"", "rkey": 0}
    for name, changes in (
        ("the next", {}), ("the next, without payload", {"payload": b"", "rkey": 0, "ack_req": 1}), ("a jump", jump),
        ("a jump with an immediate", jump | {"opcode": Opcode.WRITE_ONLY_IMM, "ack_req": 1}),
        ("a jumping probe", jump | {"opcode": Opcode.PROBE}),
        ("a jumping retransmission", jump | {"opcode": Opcode.RETX_WRITE}),
        ("wrong key", {"rkey": 1}), ("wrong length", {"dma_length": 65}),
    ):
        yield Case(f"{name}, of an unknown peer", data_frame(target, src_ip=address, **changes), Reason.WRONG_PEER)
    for opcode in CONTROL:
        yield Case(f"{opcode.name} of an unknown peer", control_frame(target, opcode, src_ip=address),
                   Reason.WRONG_PEER)


def far(target, most):
    """Yield frames with the peer's address, ``most`` PSNs and more ahead of a target at its next PSN: no effect."""
    for ahead in (most, most + 1, (1 << 23) - 1):
        place = {"psn": (target.psn + ahead) % (1 << 24), "payload": b"", "rkey": 0, "ack_req": 1}
        for opcode in (Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM, Opcode.PROBE, Opcode.RETX_WRITE):
            yield Case(f"{opcode.name} {ahead} ahead", data_frame(target, opcode=opcode, **place), Reason.FAR_PSN)


def raw_frames(rng, slot_bytes):
    """Yield frames of any kind for the raw interface."""
    to_us, source = MAC["b"].to_bytes(6, "big"), MAC["a"].to_bytes(6, "big")

    def frame(ethertype, length, dst=to_us):
        return dst + source + ethertype.to_bytes(2, "big") + rng.randbytes(length - wire.ETH.size_bytes)

    everybody = BROADCAST.to_bytes(6, "big")
    yield Case("ARP broadcast", frame(wire.ETHERTYPE_ARP, 60, everybody), raw=True)
    yield Case("ARP reply", frame(wire.ETHERTYPE_ARP, 60), raw=True)
    yield Case("LLDP, multicast", frame(0x88CC, 200, b"\x01\x80\xc2\x00\x00\x0e"), raw=True)
    yield Case("IPv6", frame(0x86DD, 1514), raw=True)
    yield Case("IEEE 802.3 length", frame(46, 60), raw=True)
    yield Case("VLAN", frame(0x8100, 64), raw=True)
    for length in (14, 15, 59, 63, 64, 65, 128, 129, slot_bytes - 1, slot_bytes):
        yield Case(f"{length} bytes", frame(rng.randrange(0x0801, 0x10000), length), raw=True)
    for length in (slot_bytes + 1, 4096, 9216, 16383):
        yield Case(f"{length} bytes", frame(0x1234, length), Reason.FRAME_TOO_LONG)
    yield Case("for another host", frame(wire.ETHERTYPE_ARP, 60, source), Reason.BAD_HEADER)
    for length in (1, 6, 13):
        yield Case(f"runt of {length} bytes", rng.randbytes(length), Reason.TRUNCATED)
    garbage = bytearray(rng.randbytes(777))
    garbage[0] &= ~1
    garbage[12] = 0x99
    yield Case("garbage", bytes(garbage), Reason.BAD_HEADER)
    other = Target(15, 0, 0, 0, 0)
    udp = data_frame(other)
    yield Case("another UDP port", edit(udp, wire.UDP, UDP_AT, dport=53), raw=True)
    yield Case("TCP", edit(udp, wire.IPV4, IP_AT, protocol=6), raw=True)
    yield Case("IP options", edit(udp, wire.IPV4, IP_AT, ihl=6), raw=True)
    yield Case("fragment", edit(udp, wire.IPV4, IP_AT, fragment=8), raw=True)
    yield Case("first fragment", edit(udp, wire.IPV4, IP_AT, flags=1), raw=True)
    yield Case("IP version 6 in IPv4", edit(udp, wire.IPV4, IP_AT, version=6), raw=True)
    ack = wire.build_frame(opcode=Opcode.ACKNOWLEDGE, dst_mac=MAC["b"], src_mac=MAC["a"], src_ip=IP["a"],
                           dst_ip=IP["b"], sport=0xC000, dest_qp=15, psn=3, extensions=wire.AETH.pack(syndrome=0x1F))
    yield Case("acknowledgement for no QP", ack, Reason.UNKNOWN_QP)
    yield Case("acknowledgement with a wrong ICRC", _flip(ack, -1), Reason.BAD_ICRC)
