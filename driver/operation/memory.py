"""What the driver itself reads and writes of registered memory, checked as the card would check it."""

from weft.hdl.contract.abi import KEY_TAG_BITS, AccessFlag

from ..terms.errors import InvalidValue


class Refused(Exception):
    """The access is not permitted, or there is no such memory."""


class Memory:
    """The registered memory of a card.

    Parameters
    ----------
    mrs : dict of int to MR
        By index. They have ``pd.handle``, ``access``, ``buf``, ``length``, ``rkey``, and ``read`` and ``write`` in the
        shape of pyverbs.
    keys : LocalKeys

    Attributes
    ----------
    card_keys : LocalKeys
    """

    def __init__(self, mrs, keys):
        self.mrs, self.card_keys = mrs, keys

    def local(self, pd, va, length, key, need=0):
        """The region of a scatter-gather entry, which has the card's key for it, or None if it is empty.

        Raises
        ------
        Refused
        """
        return self._find(pd, va, length, key, need) if length else None

    def remote(self, pd, va, length, rkey, need, granted):
        """The region that a peer names; ``granted`` is what the QP permits.

        Raises
        ------
        Refused
        """
        if need & ~granted:
            raise Refused
        return self._find(pd, va, length, rkey, need) if length else None

    def _find(self, pd, va, length, key, need):
        mr = self.mrs.get(key >> KEY_TAG_BITS)
        if (mr is None or mr.closed or mr.rkey != key or mr.pd.handle != pd or need & ~mr.access
                or va < mr.buf or va + length > mr.buf + mr.length):
            raise Refused
        return mr

    def gather(self, sges):
        """Bytes of a scatter-gather list, whatever its keys.

        Raises
        ------
        InvalidValue
            If a part of it is in no region.
        """
        return b"".join(self._bytes_at(va, length) for va, length, _ in sges if length)

    def _bytes_at(self, va, length):
        for mr in self.mrs.values():
            if mr.buf <= va and va + length <= mr.buf + mr.length and not mr.closed:
                return bytes(mr.read(length, va - mr.buf))
        raise InvalidValue(f"{length} bytes at {va:#x} are in no memory region")

    def store(self, pd, sges, data):
        """Write ``data`` where a scatter-gather list says, which has room for it.

        Raises
        ------
        Refused
            Nothing was written then.
        """
        places = [(self.local(pd, *sge, AccessFlag.LOCAL_WRITE), sge) for sge in cut(sges, len(data))]
        done = 0
        for mr, (va, length, _) in places:
            mr.write(data[done : done + length], length, va - mr.buf)
            done += length


def cut(sges, length):
    """The first ``length`` bytes of a scatter-gather list, without empty entries."""
    parts = []
    for va, n, key in sges:
        if n := min(n, length):
            parts.append((va, n, key))
            length -= n
    return parts


def total(sges):
    """Bytes of a scatter-gather list."""
    return sges[0][1] if len(sges) == 1 else sum([n for _, n, _ in sges])
