"""From a request to chunks and packets: who carries which bytes under which PSN."""

from dataclasses import dataclass, field

from weft.hdl import abi, wire

CHUNK_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = 1 << 31


@dataclass
class Request:
    """A send work request on its way.

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
    signaled : bool
        A success is reported on the CQ (errors always are).
    cookie : object
        Whatever the owner wants back with the completion.
    """

    wr_id: int
    sges: list
    remote_va: int
    rkey: int
    imm: int | None = None
    signaled: bool = True
    cookie: object = None
    psn: int = field(default=None, init=False)
    packets: int = field(default=None, init=False)

    @property
    def length(self):
        return sum(length for _, length, _ in self.sges)

    @property
    def end_psn(self):
        """PSN behind the last packet."""
        return self.psn + self.packets


@dataclass(eq=False)
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
        local_va, remote_va, length = self.span(first, count)
        ends = self.last and first + count == self.packets
        with_imm = ends and self.request.imm is not None
        fields = {
            "opcode": abi.WorkOpcode.WRITE_IMM if with_imm else abi.WorkOpcode.WRITE,
            "ack_req": int(ends), "local_va": local_va, "remote_va": remote_va, "length": length,
            "lkey": self.lkey, "rkey": self.rkey, "psn": (self.psn + first) & 0xFFFF_FFFF,
            "imm": self.request.imm if with_imm else 0}
        if rsn is not None:
            fields |= {"retransmit": 1, "rsn": rsn & 0xFF_FFFF}
        return fields

    def chunks(self, chunk_bytes=CHUNK_BYTES):
        """(first, count) of the chunks, each at most ``chunk_bytes`` long and cut at remote PMTU boundaries."""
        step = max(1, chunk_bytes // self.pmtu)
        for first in range(0, self.packets, step):
            yield first, min(step, self.packets - first)


def request_packets(request, pmtu):
    """PSNs a request needs."""
    at, total = request.remote_va, 0
    for _, length, _ in request.sges:
        if length:
            total += wire.packet_count(at, length, pmtu)
            at += length
    return (total or 1) + (request.imm is not None and total > 1)


def split(request, psn, pmtu):
    """Pieces of a request whose first packet has the given PSN; sets its ``psn`` and ``packets``.

    Every packet says its own place and length alone. So that the receiver learns those of the message, an immediate
    that ends several packets comes in one of its own: without payload, with the message's address, and with its
    length in place of the key, which nobody asks for when there is no payload.
    """
    sges = [s for s in request.sges if s[1]] or [(request.sges[0] if request.sges else (0, 0, 0))]
    pieces, at, next_psn, packets = [], request.remote_va, psn, request_packets(request, pmtu)
    for va, length, lkey in sges:
        count = wire.packet_count(at, length, pmtu)
        pieces.append(Piece(request, next_psn, count, va, lkey, at, length, False, pmtu, request.rkey))
        at += length
        next_psn += count
    if next_psn < psn + packets:
        pieces.append(Piece(request, next_psn, 1, 0, 0, request.remote_va, 0, False, pmtu, request.length))
    elif request.imm is not None and not request.length:
        pieces[-1].rkey = 0
    pieces[-1].last = True
    request.psn, request.packets = psn, packets
    return pieces
