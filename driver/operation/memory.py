"""Access of the driver to registered memory, with the checks of the card."""

from weft.hdl.contract.abi import KEY_TAG_BITS, AccessFlag

from ..terms.errors import InvalidValue


class AccessError(Exception):
    """Access error: the access is not permitted, or the memory does not exist."""


class Memory:
    """Registered memory of a card.

    Parameters
    ----------
    mrs : dict of int to MR
        By index. Used are ``pd.handle``, ``access``, ``buf``, ``length``, ``rkey``, and ``read`` and ``write`` as in
        pyverbs.
    keys : LocalKeys

    Attributes
    ----------
    card_keys : LocalKeys
    """

    def __init__(self, mrs, keys):
        self.mrs, self.card_keys = mrs, keys

    def local(self, pd, va, length, key, need=0):
        """Return the region of a scatter-gather entry with the card's key, or None if the entry is empty.

        Raises
        ------
        Refused
        """
        return self._find(pd, va, length, key, need) if length else None

    def remote(self, pd, va, length, rkey, need, granted):
        """Return the region that a peer accesses, or None if the access is empty. ``granted`` is what the QP permits.

        Raises
        ------
        Refused
        """
        if need & ~granted:
            raise AccessError
        return self._find(pd, va, length, rkey, need) if length else None

    def _find(self, pd, va, length, key, need):
        mr = self.mrs.get(key >> KEY_TAG_BITS)
        if (mr is None or mr.closed or mr.rkey != key or mr.pd.handle != pd or need & ~mr.access
                or va < mr.buf or va + length > mr.buf + mr.length):
            raise AccessError
        return mr

    def gather(self, sges):
        """Return the bytes of a scatter-gather list. Its keys are ignored.

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
        """Write ``data`` to a scatter-gather list, which must be long enough.

        Raises
        ------
        Refused
            Nothing was written.
        """
        places = [(self.local(pd, *sge, AccessFlag.LOCAL_WRITE), sge) for sge in cut(sges, len(data))]
        done = 0
        for mr, (va, length, _) in places:
            mr.write(data[done : done + length], length, va - mr.buf)
            done += length


def cut(sges, length):
    """Return the first ``length`` bytes of a scatter-gather list, without empty entries."""
    parts = []
    for va, n, key in sges:
        if n := min(n, length):
            parts.append((va, n, key))
            length -= n
    return parts


def total(sges):
    """Return the number of bytes of a scatter-gather list."""
    return sges[0][1] if len(sges) == 1 else sum([n for _, n, _ in sges])
