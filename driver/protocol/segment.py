"""Segmentation of requests into pieces, chunks and packets."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from weft.hdl.contract import abi, wire

from .message_end import SEQUENCE_BITS, Kind, MessageEnd

CHUNK_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = 1 << 31
_SEQUENCES = 1 << SEQUENCE_BITS
_BULK = frozenset({Kind.SEND_DATA, Kind.READ_DATA})


class Work(NamedTuple):
    """Fields of a WORK descriptor, without those of its connection.

    ``last`` requests an acknowledgement of the last packet, and ``imm`` is the immediate of that packet, or None.
    ``inline`` is the payload, or None. ``rsn`` is the RSN of the first packet of a retransmission, else None.
    """

    local_va: int
    lkey: int
    remote_va: int
    rkey: int
    psn: int
    length: int
    last: bool
    imm: int | None = None
    inline: bytes | None = None
    rsn: int | None = None


@dataclass(eq=False, slots=True)
class Piece:
    """Part of a request that comes from one SGE: consecutive PSNs, local and remote addresses.

    It also serves as the :class:`Work` of all its packets.

    Attributes
    ----------
    last : bool
        The last packet ends the message.
    pmtu : int
        Bytes.
    imm : int or None
        Of the last packet.
    inline : bytes or None
        The data itself, which is always one packet.
    """

    psn: int
    packets: int
    local_va: int
    lkey: int
    remote_va: int
    rkey: int
    length: int
    pmtu: int
    last: bool = False
    imm: int | None = None
    inline: bytes | None = None
    rsn: ClassVar = None

    def _edge(self, packet):
        """Return the remote address at which packet number ``packet`` of the piece starts."""
        if packet == 0:
            return self.remote_va
        return min((self.remote_va // self.pmtu + packet) * self.pmtu, self.remote_va + self.length)

    def span(self, first, count):
        """Return (local va, remote va, bytes) of ``count`` packets from packet number ``first``."""
        start, end = self._edge(first), self._edge(first + count)
        return self.local_va + start - self.remote_va, start, end - start

    def work(self, first, count, rsn=None):
        """Return the :class:`Work` of ``count`` packets from packet number ``first``."""
        if count == self.packets:
            local_va, remote_va, length, ends = self.local_va, self.remote_va, self.length, self.last
        else:
            local_va, remote_va, length = self.span(first, count)
            ends = self.last and first + count == self.packets
        return Work(local_va, self.lkey, remote_va, self.rkey, self.psn + first, length, ends,
                    self.imm if ends else None, self.inline, rsn)

    def chunks(self, chunk_bytes=CHUNK_BYTES):
        """Yield (first, count) of the chunks, each at most ``chunk_bytes`` long and cut at remote PMTU boundaries."""
        step = max(1, chunk_bytes // self.pmtu)
        for first in range(0, self.packets, step):
            yield first, min(step, self.packets - first)

    @property
    def end_psn(self):
        """PSN after the last packet."""
        return self.psn + self.packets

    @property
    def entries(self):
        """Ring entries of its descriptor: two if the first one cannot hold all of its payload."""
        return 1 if self.inline is None or len(self.inline) <= abi.INLINE_HEAD_BYTES else 2


class Request(Piece):
    """Message to send: data to write, and message end.

    Attributes
    ----------
    wr_id : int
        Of the application.
    sges : list of (va, length, lkey)
        Local pieces, in order.
    remote_va, rkey : int
        Destination of the data.
    imm : int or None
        Immediate data of the last packet.
    end : MessageEnd or None
        Contents of a separate packet after the data.
    targets : list of (va, rkey, length) or None
        Destinations of the data if there are several; as many bytes as ``sges``.
    sequence : int
        Number of the request among those of its sender.
    solicited : bool
        With ``imm``: request an event at the receiver.
    followed : bool
        The message continues with the next request; only the last request has a message end.
    inline : bytes or None
        Data that is copied into the descriptor; ``sges`` is then one piece of its length without memory. There is at
        most one target.
    single : bool
        The request is its only piece: one non-empty SGE, one destination, and no ``end``.
    """

    single = False
    __slots__ = ("end", "followed", "sequence", "sges", "solicited", "targets", "wr_id")

    def __init__(self, wr_id, sges, remote_va, rkey, *, imm=None, end=None, targets=None, sequence=0, solicited=False,
                 followed=False, inline=None):
        self.wr_id, self.sges, self.length = wr_id, sges, sum([length for _, length, _ in sges])
        self.remote_va, self.rkey, self.imm = remote_va, rkey, imm
        self.end, self.targets, self.inline = end, targets, inline
        self.sequence, self.solicited, self.followed = sequence, solicited, followed
        self.psn = self.packets = None
        if self.length > MESSAGE_BYTES_MAX:
            raise ValueError(f"a request of {self.length} bytes; at most {MESSAGE_BYTES_MAX} are possible")

    def on_sent(self):
        """Called when all of it is acknowledged."""

    @property
    def bulk(self):
        """True for data whose receiver waits for all of it: later messages without data may overtake it."""
        return self.end is not None and self.end.kind in _BULK

    def writes(self):
        """Yield (local va, lkey, remote va, rkey, length) of the non-empty writes."""
        targets = iter(self.targets if self.targets is not None else [(self.remote_va, self.rkey, self.length)])
        at, rkey, space = 0, 0, 0
        for va, left, lkey in self.sges:
            while left:
                while not space:
                    at, rkey, space = next(targets)
                count = min(left, space)
                yield va, lkey, at, rkey, count
                va, at, left, space = va + count, at + count, left - count, space - count


def split(request, psn, pmtu):
    """Cut a request whose first packet has PSN ``psn`` into pieces. Sets its ``psn`` and ``packets``.

    Every packet contains only its destination and length. Information about the message as a whole, or that does not
    fit a packet with data, is in a separate packet without payload: its address, key and immediate are a MESSAGE_END.
    """
    request.psn, inline, imm, end, at = psn, request.inline, request.imm, request.end, request.remote_va
    pieces, next_psn = [], psn
    for va, lkey, to, rkey, length in request.writes():
        count = 1 if inline else wire.packet_count(to, length, pmtu)
        pieces.append(Piece(next_psn, count, va, lkey, to, rkey, length, pmtu, inline=inline))
        next_psn += count
    if end is None and imm is not None and (next_psn != psn + 1 or request.solicited):
        end = MessageEnd(Kind.WRITE_IMM, request.sequence % _SEQUENCES, request.length, 0, imm, 1,
                         int(request.solicited))
    if end is not None:
        va, key, imm = end.words()
        pieces.append(Piece(next_psn, 1, 0, 0, va, key, 0, pmtu))
    elif not pieces:
        pieces.append(Piece(psn, 1, 0, 0, at, request.rkey, 0, pmtu))
    pieces[-1].imm, pieces[-1].last = imm, not request.followed
    request.packets = pieces[-1].psn + pieces[-1].packets - psn
    return pieces
