"""Invalid frames, made from genuine ones."""

import collections

from weft.hdl.contract import wire

IP_AT = wire.ETH.size_bytes
UDP_AT = IP_AT + wire.IPV4.size_bytes
SRC_AT = IP_AT + wire.IPV4.offsets["src"] // 8
QPN_AT = wire.BTH_OFFSET + 5
BTH_END = wire.RETH_OFFSET
HEADERS = ((wire.ETH, 0), (wire.IPV4, IP_AT), (wire.UDP, UDP_AT), (wire.BTH, wire.BTH_OFFSET))
LONGEST = 4400
DESTINATION = 6      # bytes of the destination MAC address, the first field of a frame


def seal(frame):
    """Return the frame with a correct ICRC."""
    return frame[:-wire.ICRC_BYTES] + wire.icrc(frame[:-wire.ICRC_BYTES])


def edit(frame, layout, offset, **changes):
    """Return the frame with fields of a header replaced.

    The checksum of an IPv4 header is corrected, unless it is one of the replaced fields.
    """
    fields = vars(layout.unpack(frame[offset:])) | changes
    if layout is wire.IPV4 and "checksum" not in changes:
        fields["checksum"] = wire.ipv4_checksum(layout.pack(**fields | {"checksum": 0}))
    return frame[:offset] + layout.pack(**fields) + frame[offset + layout.size_bytes:]


def destination(frame):
    """Return the destination QPN of a frame, which must be long enough."""
    return int.from_bytes(frame[QPN_AT:QPN_AT + 3], "big")


def _peer(frame):
    """Return source address and destination QPN, as bytes."""
    return frame[SRC_AT:SRC_AT + 4] + frame[QPN_AT:QPN_AT + 3]


class FrameFuzzer:
    """Source of random frames derived from genuine ones.

    Parameters
    ----------
    genuine : list of bytes
        Complete RoCEv2 frames for one host from its true peer, of every opcode if possible.
    spared : list of bytes
        Genuine frames of QPs with an honest peer: only frames from unknown peers are derived from them.

    Attributes
    ----------
    drawn : Counter
        Frames by kind.
    """

    def __init__(self, rng, genuine, spared=()):
        self._rng, self._genuine = rng, list(genuine)
        self._honest = list(spared) or self._genuine
        self._spared = {_peer(frame) for frame in spared}
        self.drawn = collections.Counter()

    def draw(self):
        """Return a frame of at least one byte."""
        while True:
            kind = self._rng.choice(KINDS)
            frame = kind(self, self._rng.choice(self._genuine))
            if frame and _peer(frame) not in self._spared:
                self.drawn[kind.__name__.strip("_")] += 1
                return frame

    def _number(self, width, old):
        """Return a value of a field: near the old one, at an end of its range, or random."""
        rng, top = self._rng, (1 << width) - 1
        return rng.choice([rng.getrandbits(width), old ^ 1 << rng.randrange(width), old + 1 & top, old - 1 & top,
                           0, top, 1 << width - 1])

    def _sealed(self, frame, chance):
        return seal(frame) if len(frame) > BTH_END + wire.ICRC_BYTES and self._rng.random() < chance else frame

    def _random_bytes(self, genuine):
        """Return random bytes; half of the frames have this host's destination address."""
        noise = self._rng.randbytes(self._rng.choice([self._rng.randint(1, 130), self._rng.randint(1, LONGEST)]))
        return (genuine[:DESTINATION] if self._rng.random() < 0.5 else b"") + noise

    def _random_body(self, genuine):
        """Return random bytes after a valid BTH, with a correct ICRC."""
        rng = self._rng
        opcode = rng.choice([rng.randrange(256), rng.choice(list(wire.Opcode))])
        fields = wire.BTH.unpack(genuine[wire.BTH_OFFSET:])
        ip = wire.IPV4.unpack(genuine[IP_AT:])
        ethernet = wire.ETH.unpack(genuine)
        return wire.build_frame(
            opcode=opcode, dst_mac=ethernet.dst, src_mac=ethernet.src, src_ip=ip.src, dst_ip=ip.dst, sport=0xC000,
            dest_qp=fields.dest_qp, psn=fields.psn + rng.choice([0, rng.getrandbits(24)]), ack_req=rng.getrandbits(1),
            extensions=rng.randbytes(4 * rng.randrange(8)), payload=rng.randbytes(rng.choice([0, 1, 64, 500])))

    def _fields(self, genuine):
        """Return the frame with one to four fields of any header changed."""
        rng, frame = self._rng, genuine
        opcode = frame[wire.BTH_OFFSET]
        headers, at = list(HEADERS), BTH_END
        for layout in wire.EXTENSIONS.get(opcode, ()):
            if layout is not wire.CNPH:     # all of it is reserved
                headers.append((layout, at))
            at += layout.size_bytes
        for _ in range(rng.randint(1, 4)):
            layout, at = rng.choice(headers)
            field = rng.choice([f for f in layout.fields if not f.name.startswith("_")])
            old = vars(layout.unpack(frame[at:]))[field.name]
            frame = edit(frame, layout, at, **{field.name: self._number(field.width, old)})
        return self._sealed(frame, 0.8)

    def _bits(self, genuine):
        """Return the frame with one to eight bits flipped."""
        frame = bytearray(genuine)
        for _ in range(self._rng.randint(1, 8)):
            frame[self._rng.randrange(len(frame))] ^= 1 << self._rng.randrange(8)
        return self._sealed(bytes(frame), 0.5)

    def _cut(self, genuine):
        """Return the frame made shorter or longer than its headers state."""
        rng = self._rng
        if rng.random() < 0.7:
            return self._sealed(genuine[:rng.randint(1, len(genuine))], 0.5)
        return self._sealed(genuine + rng.randbytes(rng.randint(1, 200)), 0.5)

    def _spliced(self, genuine):
        """Return the head of one frame and the tail of another."""
        rng, other = self._rng, self._rng.choice(self._genuine)
        at = rng.randint(1, len(genuine))
        return self._sealed(genuine[:at] + other[rng.randint(0, len(other)):], 0.5)

    def _replayed(self, genuine):
        """Return the frame unchanged."""
        return genuine

    def _foreign(self, genuine):
        """Return the frame, or a frame of another QP, from an unknown address, half of them with another PSN."""
        rng = self._rng
        frame = edit(rng.choice([genuine, rng.choice(self._honest)]), wire.IPV4, IP_AT, src=rng.getrandbits(32))
        if rng.random() < 0.5:
            frame = edit(frame, wire.BTH, wire.BTH_OFFSET, psn=rng.getrandbits(24))
        return seal(frame)


KINDS = (FrameFuzzer._random_bytes, FrameFuzzer._random_body, FrameFuzzer._fields, FrameFuzzer._bits,
         FrameFuzzer._cut, FrameFuzzer._spliced, FrameFuzzer._replayed, FrameFuzzer._foreign)
