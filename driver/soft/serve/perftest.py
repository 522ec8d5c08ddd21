"""Server side of the handshake of perftest's programs over TCP, before and after a test.

Client and server are the same program, and the server answers every message with one of the same kind: its version (16
bytes), size of a page and of a cache line (4 bytes each), PMTU (2 bytes); then, at every synchronization, a QP and its
memory (108 bytes of text); at the end results. Numbers are those of perftest 4.5.
"""

import re
from dataclasses import dataclass

from ...terms.checks import unsigned

GREETING_BYTES, MTU_AT = 26, 24
KEYS_BYTES, MARK_BYTES = 108, 5
_KEYS = re.compile(rb"[0-9a-f]{4}:")
_BITS = {"out_reads": 8, "qpn": 24, "psn": 24, "rkey": 32, "va": 64, "ip": 32}


@dataclass(frozen=True)
class Keys:
    """QP and its memory; ``ip`` is that of its GID."""

    out_reads: int
    qpn: int
    psn: int
    rkey: int
    va: int
    ip: int

    def __post_init__(self):
        for name, bits in _BITS.items():
            unsigned(name, getattr(self, name), bits)

    def pack(self):
        """Return the text, padded with zeros."""
        gid = bytes(10) + b"\xff\xff" + self.ip.to_bytes(4, "big")
        text = (f"{0:04x}:{self.out_reads:04x}:{self.qpn:06x}:{self.psn:06x}:{self.rkey:08x}:{self.va:016x}:"
                + "".join(f"{byte:02x}:" for byte in gid) + f"{0:08x}:")
        return text.encode().ljust(KEYS_BYTES, b"\0")

    @classmethod
    def unpack(cls, data):
        """Return the :class:`Keys` of a text.

        Raises
        ------
        ValueError
            If the text is malformed, a number is out of range, or the GID is not an IPv4 address.
        """
        _, out_reads, qpn, psn, rkey, va, *rest = (int(word, 16) for word in data.rstrip(b"\0").split(b":") if word)
        gid = bytes(rest[:16])
        if gid[:12] != bytes(10) + b"\xff\xff" or len(rest) != 17:
            raise ValueError("no GID of an IPv4 address")
        return cls(out_reads, qpn, psn, rkey, va, int.from_bytes(gid[12:], "big"))


class Handshake:
    """Conversation with one client: bytes in, bytes out.

    Parameters
    ----------
    connect : callable(Keys, int)
        Creates a QP for the client's QP, with this PMTU (IBTA's number), and returns its :class:`Keys`.
    """

    def __init__(self, connect):
        self._connect, self._own = connect, None
        self._greeting, self._part = b"", b""

    def feed(self, data):
        """Return the answer to ``data``.

        Raises
        ------
        ValueError
            If the client is not perftest.
        """
        missing = max(0, GREETING_BYTES - len(self._greeting))
        self._greeting += data[:missing]
        answer, self._part = data[:missing], self._part + data[missing:]
        while len(self._part) >= MARK_BYTES:
            if not _KEYS.match(self._part):
                return answer + self._take(len(self._part))
            if len(self._part) < KEYS_BYTES:
                break
            text = self._take(KEYS_BYTES)
            if self._own is None:
                pmtu = int(self._greeting[MTU_AT:].rstrip(b"\0").decode(errors="replace") or "0")
                self._own = self._connect(Keys.unpack(text), pmtu)
            answer += self._own.pack()
        return answer

    def _take(self, count):
        taken, self._part = self._part[:count], self._part[count:]
        return taken
