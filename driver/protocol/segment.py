"""From a request to chunks and packets: who carries which bytes under which PSN."""

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

    ``last`` asks for an acknowledgement of the last packet, ``imm`` is the immediate of that one, or None. ``inline``
    is the payload, or None. ``rsn`` makes it a retransmission, whose first packet has that RSN.
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
    """The part of a request that comes from one SGE: consecutive PSNs, local and remote addresses. It is the
    :class:`Work` of all its packets as well.

    Attributes
    ----------
    last : bool
        The last packet ends the message.
    pmtu : int
        Bytes.
    imm : int or None
        Of the last packet.
    inline : bytes or None
        The data itself, which is one packet wherever it goes.
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
        """Remote address where packet number ``packet`` of the piece starts."""
        if packet == 0:
            return self.remote_va
        return min((self.remote_va // self.pmtu + packet) * self.pmtu, self.remote_va + self.length)

    def span(self, first, count):
        """(local va, remote va, bytes) of ``count`` packets from packet number ``first``."""
        start, end = self._edge(first), self._edge(first + count)
        return self.local_va + start - self.remote_va, start, end - start

    def work(self, first, count, rsn=None):
        """:class:`Work` that carries ``count`` packets from packet number ``first``."""
        if count == self.packets:
            local_va, remote_va, length, ends = self.local_va, self.remote_va, self.length, self.last
        else:
            local_va, remote_va, length = self.span(first, count)
            ends = self.last and first + count == self.packets
        return Work(local_va, self.lkey, remote_va, self.rkey, self.psn + first, length, ends,
                    self.imm if ends else None, self.inline, rsn)

    def chunks(self, chunk_bytes=CHUNK_BYTES):
        """(first, count) of the chunks, each at most ``chunk_bytes`` long and cut at remote PMTU boundaries."""
        step = max(1, chunk_bytes // self.pmtu)
        for first in range(0, self.packets, step):
            yield first, min(step, self.packets - first)

    @property
    def end_psn(self):
        """PSN behind the last packet."""
        return self.psn + self.packets

    @property
    def entries(self):
        """Ring entries of its descriptor: two if the first one does not hold all of its payload."""
        return 1 if self.inline is None or len(self.inline) <= abi.INLINE_HEAD_BYTES else 2


class Request(Piece):
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
    single : bool
        The request is its own only piece: one SGE that is not empty goes to one place, and its end says nothing.
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
        """All of it arrived."""

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


def split(request, psn, pmtu):
    """Pieces of a request whose first packet has the given PSN; sets its ``psn`` and ``packets``.

    Every packet says its own place and length alone. What is to be known of the message as a whole, or does not fit
    a packet with data, comes in one of its own: without payload, its address, key and immediate are a MESSAGE_END.
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
