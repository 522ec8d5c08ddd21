"""The mailbox of a QP: memory of the driver's own that the peer's driver writes, and what goes to the peer's."""

from weft.hdl.contract import abi, wire
from weft.hdl.contract.layout import Field, Layout

from ..device.page_table import pack_ptes
from ..protocol.message_end import Kind, MessageEnd

SLOTS = 16
SGES_MAX = 16
REQUEST_BYTES = 512
GRANT_BYTES = SGES_MAX * wire.RETH.size_bytes
EAGER_BYTES = 256      # a send of so many bytes or fewer lies in the mailbox

ATOMIC_ETH = Layout("AtomicETH", "What an atomic operation does, as in IBTA 1.7, section 9.3.3.", [
    Field("va", 64, "Where: a multiple of 8."), Field("rkey", 32, "Remote key."),
    Field("swap_or_add", 64, "New value, or what is added."), Field("compare", 64, "COMPARE_AND_SWAP: old value.")],
    size_bytes=28, byteorder="big")


def pack_targets(targets):
    """Bytes of (va, key, length) of each."""
    return b"".join(wire.RETH.pack(va=va, rkey=key, dma_length=length) for va, key, length in targets)


def unpack_targets(data):
    """The same, back."""
    size = wire.RETH.size_bytes
    found = (wire.RETH.unpack(data[at : at + size]) for at in range(0, len(data), size))
    return [(t.va, t.rkey, t.dma_length) for t in found]


def fit(targets, length):
    """They have so many bytes in all, and none ends behind the last address."""
    return sum(n for *_, n in targets) == length and all(va + n <= 1 << 64 for va, _, n in targets)


class Mailbox:
    """Request slots and grant slots that the peer writes; behind them as many from which this end writes the peer's.

    It is one window of the QP, from address 0 on. Each end tells the other of its key and of how many slots it has,
    and uses as many as both have. What a peer writes where it should not harms only what goes to itself.

    Parameters
    ----------
    lender
        It has ``device``, ``indices``, ``tags``, ``pte_ranges`` and ``commands``: what memory is registered with.
    qp_index : int
    post : callable(end)
        Sends a message without data.
    wake : callable
        Called when the card has it.

    Attributes
    ----------
    ready : bool or None
        The card has it; None when it is to forget it.
    peer_key : int or None
        Of the other mailbox, which has :attr:`peer_slots`.
    slots : int
        What both have.
    owes_answer : bool
        The peer asked where it is.
    """

    def __init__(self, lender, qp_index, post, wake, slots=SLOTS):
        self._lender, self._qp_index, self._post, self._wake = lender, qp_index, post, wake
        self.own_slots = self.slots = slots
        self.ready = False
        self.peer_key = self.peer_slots = self.key = None
        self._asked = self._was_asked = self.owes_answer = False
        self._buffer = None

    # ------------------------------------------------------------------------------------ its memory

    def open(self):
        """Register it, unless that was done; :attr:`ready` follows.

        Raises
        ------
        MemoryError
        """
        if self._buffer is not None:
            return
        lender, half = self._lender, self.own_slots * (REQUEST_BYTES + GRANT_BYTES)
        size = -(-2 * half // abi.PAGE_4K) * abi.PAGE_4K
        pages = size // abi.PAGE_4K
        index = lender.indices.take()
        try:
            self._ptes = (lender.pte_ranges.alloc(pages), pages)
        except MemoryError:
            lender.indices.give(index)
            raise
        self._index, self.key = index, abi.make_key(index, lender.tags.new(index))
        self._buffer = lender.device.alloc(size + -(-pages * abi.PTE_BYTES // abi.BLOCK_BYTES) * abi.BLOCK_BYTES,
                                           align=abi.PAGE_4K)
        physical = self._buffer.physical(0)
        self._buffer.write(size, pack_ptes(range(physical, physical + size, abi.PAGE_4K)))
        lender.commands.submit(abi.CommandOpcode.PAGE_TABLE_WRITE, self._answered, pte_index=self._ptes[0], count=pages,
                               address=self._buffer.physical(size))
        lender.commands.submit(
            abi.CommandOpcode.MR_CREATE, self._opened, mr_index=index, key_tag=self.key % (1 << abi.KEY_TAG_BITS),
            va=0, length=size, access=abi.AccessFlag.REMOTE_WRITE, pd=self._qp_index, page_2m=0,
            pte_index=self._ptes[0])

    def memory(self, key):
        """Its buffer, if ``key`` is its own, or None."""
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
        """The card is to forget it; :attr:`closed` follows."""
        if self._buffer is not None and self.ready is not None:
            self.ready = None
            self._lender.commands.submit(abi.CommandOpcode.MR_DESTROY, self._closed, mr_index=self._index)

    def _closed(self, _):
        self._lender.device.free(self._give_back())

    @property
    def closed(self):
        """There is no memory of it."""
        return self._buffer is None

    def _give_back(self):
        """All but the memory, which is returned."""
        buffer, self._buffer, self.ready = self._buffer, None, None
        self._lender.indices.give(self._index)
        self._lender.pte_ranges.free(*self._ptes)
        return buffer

    def forget(self):
        """The card will be reset, or was, and has it no more then."""
        if self._buffer is not None:
            self._lender.keep(self._give_back())

    # ------------------------------------------------------------------------------ the other mailbox

    def reach(self):
        """True if both mailboxes are known, or will be before what is sent from now on; otherwise the other is asked
        for."""
        if self.peer_key is None and self.ready and not self._asked:
            self._asked = True
            self._tell(Kind.MAILBOX_ASK)
        return self.peer_key is not None and not self.owes_answer

    @property
    def awaits_peer(self):
        """The other one was asked for, and is not known yet."""
        return self._asked and self.peer_key is None

    def on_message(self, end):
        """A MAILBOX or MAILBOX_ASK of the peer; false if it makes no sense.

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
        """Answer, if that is due and possible."""
        if self.owes_answer and self.ready:
            self.owes_answer = False
            self._tell(Kind.MAILBOX)

    def _tell(self, kind):
        self._post(MessageEnd(kind, length=self.own_slots, argument=self.key))

    # ----------------------------------------------------------------------------------------- slots

    def request_place(self, slot, length):
        """(va, key, length) of a request slot of the peer."""
        return slot * REQUEST_BYTES, self.peer_key, length

    def grant_place(self, slot, length):
        """The same of a grant slot."""
        return self.peer_slots * REQUEST_BYTES + slot * GRANT_BYTES, self.peer_key, length

    def stage_request(self, slot, data):
        """Local SGE that holds ``data`` for as long as the slot is in use."""
        return self._stage(slot * REQUEST_BYTES, data)

    def stage_grant(self, slot, data):
        """The same of a grant slot."""
        return self._stage(self.own_slots * REQUEST_BYTES + slot * GRANT_BYTES, data)

    def _stage(self, at, data):
        at += self.own_slots * (REQUEST_BYTES + GRANT_BYTES)
        self._buffer.write(at, data)
        return at, len(data), self.key

    def read_request(self, slot, length):
        """Bytes that the peer wrote."""
        return self._buffer.read(slot * REQUEST_BYTES, length)

    def read_grant(self, slot, targets):
        """The same of a grant."""
        return unpack_targets(self._buffer.read(
            self.own_slots * REQUEST_BYTES + slot * GRANT_BYTES, targets * wire.RETH.size_bytes))
