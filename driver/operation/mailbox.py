"""Mailbox of a QP: driver memory that the peer's driver writes, and access to the peer's mailbox."""

from weft.hdl.contract import abi, wire
from weft.hdl.contract.layout import Field, Layout

from ..device.page_table import pack_ptes
from ..protocol.message_end import Kind, MessageEnd

SLOTS = 16
SGES_MAX = 16
REQUEST_BYTES = 512
GRANT_BYTES = SGES_MAX * wire.RETH.size_bytes
EAGER_BYTES = 256      # largest send whose data is placed in the mailbox
STAGE_BYTES = 1024     # of a staging slot: largest inline data

ATOMIC_ETH = Layout("AtomicETH", "What an atomic operation does, as in IBTA 1.7, section 9.3.3.", [
    Field("va", 64, "Where: a multiple of 8."), Field("rkey", 32, "Remote key."),
    Field("swap_or_add", 64, "New value, or what is added."), Field("compare", 64, "COMPARE_AND_SWAP: old value.")],
    size_bytes=28, byteorder="big")


def pack_targets(targets):
    """Return the packed (va, key, length) of each target."""
    return b"".join(wire.RETH.pack(va=va, rkey=key, dma_length=length) for va, key, length in targets)


def unpack_targets(data):
    """Return the list of (va, key, length) that :func:`pack_targets` packed."""
    size = wire.RETH.size_bytes
    found = (wire.RETH.unpack(data[at : at + size]) for at in range(0, len(data), size))
    return [(t.va, t.rkey, t.dma_length) for t in found]


def fit(targets, length):
    """Return true if the targets have ``length`` bytes in total, and none exceeds the last address."""
    return sum(n for *_, n in targets) == length and all(va + n <= 1 << 64 for va, _, n in targets)


class Mailbox:
    """Request slots and grant slots that the peer writes, followed by as many staging slots for writes to the peer.

    The mailbox is one memory window of the QP, from address 0 on. Each end reports its key and its number of slots to
    the other, and uses the smaller number. Invalid writes of a peer affect only that peer's operations.

    Parameters
    ----------
    lender
        Used are ``device``, ``indices``, ``tags``, ``pte_ranges`` and ``commands``, to register the memory.
    qp_index : int
    post : callable(end)
        Sends a message without data.
    wake : callable
        Called when the memory is registered.
    failed : callable(exception) or None
        Called if the handling of a response of the card raises an exception.

    Attributes
    ----------
    ready : bool or None
        True if the memory is registered; None once it is being deregistered.
    peer_key : int or None
        Of the peer's mailbox, which has :attr:`peer_slots`.
    slots : int
        Smaller number of slots of the two mailboxes.
    owes_answer : bool
        The peer's request for the mailbox has no response yet.
    """

    def __init__(self, lender, qp_index, post, wake, slots=SLOTS, failed=None):
        self._lender, self._qp_index, self._post, self._wake, self._failed = lender, qp_index, post, wake, failed
        self.own_slots = self.slots = slots
        self.ready = False
        self.peer_key = self.peer_slots = self.key = None
        self._asked = self._was_asked = self.owes_answer = False
        self._buffer = None

    # ---------------------------------------------------------------------------------------- memory

    def open(self):
        """Register the memory, unless that was done. Sets :attr:`ready` later.

        Raises
        ------
        MemoryError
        """
        if self._buffer is not None:
            return
        lender, whole = self._lender, self.own_slots * (REQUEST_BYTES + STAGE_BYTES + 2 * GRANT_BYTES)
        size = -(-whole // abi.PAGE_4K) * abi.PAGE_4K
        pages = size // abi.PAGE_4K
        index = lender.indices.take()
        try:
            self._ptes = (lender.pte_ranges.alloc(pages), pages)
        except MemoryError:
            lender.indices.release(index)
            raise
        self._index, self.key = index, abi.make_key(index, lender.tags.new(index))
        self._buffer = lender.device.alloc(size + -(-pages * abi.PTE_BYTES // abi.BLOCK_BYTES) * abi.BLOCK_BYTES,
                                           align=abi.PAGE_4K)
        physical = self._buffer.physical(0)
        self._buffer.write(size, pack_ptes(range(physical, physical + size, abi.PAGE_4K)))
        lender.commands.submit(abi.CommandOpcode.PAGE_TABLE_WRITE, self._answered, self._failed,
                               pte_index=self._ptes[0], count=pages, address=self._buffer.physical(size))
        lender.commands.submit(
            abi.CommandOpcode.MR_CREATE, self._opened, self._failed, mr_index=index,
            key_tag=self.key % (1 << abi.KEY_TAG_BITS), va=0, length=size, access=abi.AccessFlag.REMOTE_WRITE,
            pd=self._qp_index, page_2m=0, pte_index=self._ptes[0])

    def memory(self, key):
        """Return the buffer if ``key`` is the key of this mailbox, else None."""
        return self._buffer if key == self.key else None

    @staticmethod
    def _answered(response):
        if response.status is not abi.CommandStatus.OK:
            raise RuntimeError(f"the card refused a mailbox: {response.status!r}")

    def _opened(self, response):
        self._answered(response)
        if self.ready is not None:
            self.ready = True
            self._wake()

    def close(self):
        """Deregister the memory. Sets :attr:`closed` later."""
        if self._buffer is not None and self.ready is not None:
            self.ready = None
            self._lender.commands.submit(abi.CommandOpcode.MR_DESTROY, self._closed, self._failed,
                                         mr_index=self._index)

    def _closed(self, _):
        self._lender.device.free(self._give_back())

    @property
    def closed(self):
        """True if the mailbox has no memory."""
        return self._buffer is None

    def _give_back(self):
        """Free everything except the memory, which is returned."""
        buffer, self._buffer, self.ready = self._buffer, None, None
        self._lender.indices.release(self._index)
        self._lender.pte_ranges.free(*self._ptes)
        return buffer

    def forget(self):
        """Release the memory at a reset of the card, after which it is not registered any more."""
        if self._buffer is not None:
            self._lender.keep(self._give_back())

    # -------------------------------------------------------------------------------- peer's mailbox

    def reach(self):
        """Return true if both ends know the other mailbox, or will before the next message; else request the peer's."""
        if self.peer_key is None and self.ready and not self._asked:
            self._asked = True
            self._notify(Kind.MAILBOX_ASK)
        return self.peer_key is not None and not self.owes_answer

    @property
    def awaits_peer(self):
        """True if the peer's mailbox was requested and is not known yet."""
        return self._asked and self.peer_key is None

    def on_message(self, end):
        """Handle a MAILBOX or MAILBOX_ASK of the peer. Return false if it is invalid.

        Raises
        ------
        MemoryError
        """
        known = (self.peer_key, self.peer_slots)
        if not 1 <= end.length <= 1 << 16 or None not in known and known != (end.argument, end.length):
            return False
        if end.kind is Kind.MAILBOX_ASK:
            if self._was_asked:
                return False
            self._was_asked = self.owes_answer = True
            self.open()
        elif not self._asked:
            return False
        self.peer_key, self.peer_slots = end.argument, end.length
        self.slots = min(self.own_slots, end.length)
        return True

    def pump(self):
        """Send the response to MAILBOX_ASK if it is due and the memory is registered."""
        if self.owes_answer and self.ready:
            self.owes_answer = False
            self._notify(Kind.MAILBOX)

    def _notify(self, kind):
        self._post(MessageEnd(kind, length=self.own_slots, argument=self.key))

    # ----------------------------------------------------------------------------------------- slots

    def request_place(self, slot, length):
        """Return (va, key, length) of a request slot of the peer."""
        return slot * REQUEST_BYTES, self.peer_key, length

    def grant_place(self, slot, length):
        """Return (va, key, length) of a grant slot of the peer."""
        return self.peer_slots * REQUEST_BYTES + slot * GRANT_BYTES, self.peer_key, length

    def stage_request(self, slot, data):
        """Return a local SGE that holds ``data`` while the request slot is in use."""
        return self._stage(slot * STAGE_BYTES, data)

    def stage_grant(self, slot, data):
        """Return a local SGE that holds ``data`` while the grant slot is in use."""
        return self._stage(self.own_slots * STAGE_BYTES + slot * GRANT_BYTES, data)

    def _stage(self, at, data):
        at += self.own_slots * (REQUEST_BYTES + GRANT_BYTES)
        self._buffer.write(at, data)
        return at, len(data), self.key

    def read_request(self, slot, length):
        """Return the bytes that the peer wrote into a request slot."""
        return self._buffer.read(slot * REQUEST_BYTES, length)

    def read_grant(self, slot, targets):
        """Return the targets that the peer wrote into a grant slot."""
        return unpack_targets(self._buffer.read(
            self.own_slots * REQUEST_BYTES + slot * GRANT_BYTES, targets * wire.RETH.size_bytes))
