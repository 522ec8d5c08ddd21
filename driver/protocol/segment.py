"""From a request to chunks and packets: who carries which bytes under which PSN."""

from dataclasses import dataclass, field

from weft.hdl.contract import abi, wire

from .message_end import Kind, MessageEnd

CHUNK_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = 1 << 31
_BULK = frozenset({Kind.SEND_DATA, Kind.READ_DATA})


@dataclass(eq=False, slots=True)
class Request:
    """A message on its way: what is written, and what its end says.

    Attributes
    ----------
    wr_id : int
        The application's.
    sges : list of (va, length, lkey)
        Local pieces, in order.
    remote_va, rkey : int
        Where the data goes.
    imm : int or None
        Immediate data of the last packet.
    cookie : object
        Whatever the owner wants back with the completion.
    end : MessageEnd or None
        What a packet of its own says behind the data.
    targets : list of (va, rkey, length) or None
        Where the data goes if it is more than one place: as many bytes as ``sges`` have.
    sequence : int
        Number of the request among those of its sender.
    solicited : bool
        With ``imm``: the receiver's event is asked for.
    followed : bool
        The message goes on with the next request: the peer is told of the end of that one alone.
    inline : bytes or None
        The data themselves, which go into the descriptor; ``sges`` is one piece of their length, of no memory. There is
        one target at most.
    """

    wr_id: int
    sges: list
    remote_va: int
    rkey: int
    imm: int | None = None
    cookie: object = None
    end: MessageEnd | None = None
    targets: list | None = None
    sequence: int = 0
    solicited: bool = False
    followed: bool = False
    inline: bytes | None = None
    packets: int = field(default=None, init=False)
    psn: int = field(default=None, init=False)
    plain = False     # no PlainWrite

    @property
    def length(self):
        """Bytes."""
        return sum([length for _, length, _ in self.sges])

    @property
    def end_psn(self):
        """PSN behind the last packet."""
        return self.psn + self.packets

    @property
    def bulk(self):
        """Data that somebody waits for as a whole: what comes behind it, and is no data, may go first."""
        return self.end is not None and self.end.kind in _BULK

    def writes(self):
        """(local va, lkey, remote va, rkey, length) of what is written, none empty."""
        targets = iter(self.targets if self.targets is not None else [(self.remote_va, self.rkey, self.length)])
        at, rkey, room = 0, 0, 0
        for va, left, lkey in self.sges:
            while left:
                while not room:
                    at, rkey, room = next(targets)
                count = min(left, room)
                yield va, lkey, at, rkey, count
                va, at, left, room = va + count, at + count, left - count, room - count


@dataclass(eq=False, slots=True)
class Piece:
    """The part of a request that comes from one SGE: consecutive PSNs, local and remote addresses."""

    request: Request
    psn: int
    packets: int
    local_va: int
    lkey: int
    remote_va: int
    length: int
    last: bool       # the last packet ends the message
    pmtu: int        # bytes
    rkey: int
    imm: int | None = None   # of the last packet
    inline: bytes | None = None     # its bytes, which are one packet wherever they go
    plain = False            # no PlainWrite

    def _edge(self, packet):
        """Remote address where packet number ``packet`` of the piece starts."""
        if packet == 0:
            return self.remote_va
        return min((self.remote_va // self.pmtu + packet) * self.pmtu, self.remote_va + self.length)

    def span(self, first, count):
        """(local va, remote va, bytes) of ``count`` packets from packet number ``first``."""
        start, end = self._edge(first), self._edge(first + count)
        return self.local_va + start - self.remote_va, start, end - start

    def work(self, first, count, rsn=None):
        """WORK fields that carry these packets; the connection adds its own.

        With ``rsn`` they are retransmissions, the first one under that RSN.
        """
        whole = count == self.packets
        local_va, remote_va, length = (
            (self.local_va, self.remote_va, self.length) if whole else self.span(first, count))
        ends = self.last and (whole or first + count == self.packets)
        with_imm = ends and self.imm is not None
        fields = {
            "opcode": abi.WorkOpcode.WRITE_IMM if with_imm else abi.WorkOpcode.WRITE,
            "ack_req": int(ends), "local_va": local_va, "remote_va": remote_va, "length": length,
            "lkey": self.lkey, "rkey": self.rkey, "psn": (self.psn + first) & 0xFFFF_FFFF,
            "imm": self.imm if with_imm else 0}
        if self.inline:
            fields["inline"] = self.inline
        if rsn is not None:
            fields |= {"retransmit": 1, "rsn": rsn & 0xFF_FFFF}
        return fields

    def chunks(self, chunk_bytes=CHUNK_BYTES):
        """(first, count) of the chunks, each at most ``chunk_bytes`` long and cut at remote PMTU boundaries."""
        step = max(1, chunk_bytes // self.pmtu)
        for first in range(0, self.packets, step):
            yield first, min(step, self.packets - first)

    @property
    def end_psn(self):
        """PSN behind the last packet."""
        return self.psn + self.packets


class PlainWrite(Piece):
    """A :class:`Request` that is its only piece: a write from one SGE to one place, without an immediate.

    It is made without ``packets`` and ``pmtu``, which it gets when it is started, and without a PSN, which it gets when
    it is cut. ``last`` says that no other request goes on with the message; ``acked`` that all of it arrived.
    """

    __slots__ = ("acked",)
    request = end = imm = inline = None
    bulk, plain = False, True

    def packed(self, pmtu):
        """It goes in packets of so many bytes; how many these are."""
        self.pmtu, at, length = pmtu, self.remote_va, self.length
        if length:
            self.packets = (at + length - 1) // pmtu - at // pmtu + 1
        else:
            self.packets, self.local_va, self.lkey = 1, 0, 0
        return self.packets


def split(request, psn, pmtu):
    """Pieces of a request whose first packet has the given PSN; sets its ``psn`` and ``packets``.

    Every packet says its own place and length alone. What is to be known of the message as a whole, or does not fit
    a packet with data, comes in one of its own: without payload, its address, key and immediate are a MESSAGE_END.
    """
    inline = request.inline
    if len(request.sges) == 1 and not (inline or request.end or request.targets) and request.imm is None:
        (va, length, lkey), at = request.sges[0], request.remote_va     # the usual case
        request.psn, request.packets = psn, wire.packet_count(at, length, pmtu)
        return [Piece(request, psn, request.packets, va if length else 0, lkey if length else 0, at, length,
                      not request.followed, pmtu, request.rkey)]
    pieces, next_psn = [], psn
    for va, lkey, at, rkey, length in request.writes():
        count = 1 if inline else wire.packet_count(at, length, pmtu)
        pieces.append(Piece(request, next_psn, count, va, lkey, at, length, False, pmtu, rkey, None, inline))
        next_psn += count
    end = request.end
    if request.imm is not None and (next_psn != psn + 1 or request.solicited):
        end = MessageEnd(Kind.WRITE_IMM, request.sequence, request.length, 0, request.imm, 1, int(request.solicited))
    if end is not None:
        va, key, imm = end.words()
        pieces.append(Piece(request, next_psn, 1, 0, 0, va, 0, True, pmtu, key, imm))
    elif not pieces:
        pieces.append(Piece(request, psn, 1, 0, 0, request.remote_va, 0, True, pmtu, request.rkey))
    else:
        pieces[-1].imm = request.imm
    pieces[-1].last = not request.followed
    request.psn, request.packets = psn, pieces[-1].psn + pieces[-1].packets - psn
    return pieces
