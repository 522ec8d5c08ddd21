"""Meta Reports of received packets: kinds MESSAGE_END (one for every message) and PROGRESS."""

from typing import NamedTuple

from weft.hdl.contract import abi

from .words import place, words

_LAYOUT = abi.REPORT_EVENT
_WORDS = words(_LAYOUT, ("phase", 32), ("qpn", 32), "psn", "base", ("holes", 32), "va", "key", "length", "imm",
               "src_ip")
_KIND_SHIFT, _KIND_MASK = place(_LAYOUT, "phase", 32, "kind")
_KINDS = {int(kind): kind for kind in abi.ReportKind}
_IMM_SHIFT, _ = place(_LAYOUT, "phase", 32, "has_imm")
GENERATION_SHIFT, _ = place(_LAYOUT, "qpn", 32, "generation")
QPN_MASK = place(_LAYOUT, "qpn", 32, "qpn")[1]


class Arrival(NamedTuple):
    """Words of a ``REPORT_EVENT``. Fields that share a word are extracted on access."""

    head: int
    tagged_qpn: int
    psn: int
    base: int
    holes: int
    va: int
    key: int
    length: int
    imm: int
    src_ip: int

    @property
    def kind(self):
        return _KINDS[self.head >> _KIND_SHIFT & _KIND_MASK]

    @property
    def qpn(self):
        return self.tagged_qpn & QPN_MASK

    @property
    def generation(self):
        return self.tagged_qpn >> GENERATION_SHIFT

    @property
    def has_imm(self):
        return self.head >> _IMM_SHIFT & 1


def arrival(entry, unpack=_WORDS.unpack, make=tuple.__new__):
    """Return the :class:`Arrival` of a ring entry."""
    return make(Arrival, unpack(entry))
