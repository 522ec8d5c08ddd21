"""Program without the library: it sends arbitrary messages to a daemon in the same process, and runs it to wait."""

import ctypes
import mmap
import os
import socket

from weft.driver.ibverbs import messages
from weft.driver.ibverbs.messages import Opcode
from weft.driver.ibverbs.rings import BELL, RING_HEADER, SEND_SLOT, SGE_SLOT, WC_SLOT
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.terms.enums import QPState, QPType, SendFlags, WROpcode

_WORDS = {field.name: RING_HEADER.offset_of(field.name) // 32 for field in RING_HEADER.fields}
VA, SLOTS = 0x5000_0000, 16
PAGE, TURNS_MAX = 4096, 20_000


class Rejected(Exception):
    """Response with an error: (error number, message)."""


class Disconnected(Exception):
    """The daemon closed the connection."""


def own_memory():
    """Open the memory of this process; return its descriptor."""
    return os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)


def address_of(mapping):
    """Return the address of an ``mmap.mmap``."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def remove(mapping, start=0):
    """Remove the pages of an ``mmap.mmap`` from an offset on: pages beyond the end of an empty file take their place.
    """
    libc, file = ctypes.CDLL(None, use_errno=True), os.memfd_create("empty")
    libc.mmap.restype = ctypes.c_void_p
    at = address_of(mapping) + start
    found = libc.mmap(ctypes.c_void_p(at), ctypes.c_size_t(len(mapping) - start), mmap.PROT_READ | mmap.PROT_WRITE,
                      mmap.MAP_SHARED | 0x10, file, ctypes.c_long(0))      # MAP_FIXED
    os.close(file)
    assert found == at, os.strerror(ctypes.get_errno())


class Ring:
    """Ring as mapped by the program."""

    def __init__(self, file, slots, slot_bytes):
        self.memory = mmap.mmap(file, RING_HEADER.size_bytes + slots * slot_bytes)
        os.close(file)
        self._words = memoryview(self.memory).cast("I")
        self.slots, self.slot_bytes = slots, slot_bytes

    def word(self, name, value=None):
        """Return a field of the ring's header, after setting it if there is a value."""
        at = _WORDS[name]
        if value is not None:
            self._words[at] = value % (1 << 32)
        return self._words[at]

    @property
    def waiting(self):
        """Number of slots that were filled and not emptied."""
        return (self.word("prod") - self.word("cons")) % (1 << 32)

    def place(self, number):
        return RING_HEADER.size_bytes + number % self.slots * self.slot_bytes

    def fill(self, data):
        """Fill the next slot with data."""
        at, prod = self.place(self.word("prod")), self.word("prod")
        self.memory[at : at + len(data)] = data
        self.word("prod", prod + 1)

    def take(self):
        """Return the available completions."""
        found = []
        while self.word("cons") != self.word("prod"):
            at = self.place(self.word("cons"))
            found.append(WC_SLOT.unpack(self.memory[at : at + WC_SLOT.size_bytes]))
            self.word("cons", self.word("cons") + 1)
        return found


class RawClient:
    """Connection to a host of ``daemon``; after :meth:`greet`, ``events`` is the socket of asynchronous events."""

    def __init__(self, daemon, host):
        self.daemon = daemon
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(daemon.paths[host])
        self.socket.setblocking(False)
        self.doorbell = self.events = None

    def send_message(self, data, files=()):
        """Send bytes; raise :class:`Disconnected` if the daemon closed the connection."""
        try:
            socket.send_fds(self.socket, [data], list(files))
        except (BrokenPipeError, ConnectionResetError):
            raise Disconnected from None

    @property
    def disconnected(self):
        """True if the daemon closed the connection."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def _wait(self):
        """Run the daemon until the next attempt to receive the response of :meth:`call`."""
        self.daemon.turn()

    def receive(self, wait=None):
        """Receive a response; return (ANSWER, its body, file descriptors), or raise :class:`Disconnected`.

        ``wait()`` runs the daemon; default: for a turn.
        """
        wait = wait or self.daemon.turn
        for _ in range(TURNS_MAX):
            try:
                data, files, *_ = socket.recv_fds(self.socket, messages.MESSAGE_BYTES_MAX, messages.FILES_MAX)
            except BlockingIOError:
                wait()
                continue
            except ConnectionResetError:
                raise Disconnected from None
            if not data:
                raise Disconnected
            return messages.ANSWER.unpack(data), data[messages.ANSWER.size_bytes:], files
        raise AssertionError("no answer")

    def call(self, opcode, *, tail=b"", files=(), **fields):
        """Send a request; return (fields of the response, file descriptors), or raise Rejected or Disconnected."""
        asked, answered = messages.MESSAGES[opcode]
        head = messages.REQUEST.pack(version=messages.VERSION, opcode=opcode)
        self.send_message(head + asked.pack(**fields) + tail, files)
        head, body, out = self.receive(self._wait)
        if head.status:
            raise Rejected(head.status, body.decode())
        return answered.unpack(body), out

    def greet(self):
        """Make the first call and map the doorbell."""
        self.welcome, (bell, doorbell, wake, events) = self.call(Opcode.HELLO)
        self.bell = mmap.mmap(bell, BELL.size_bytes)
        for file in (bell, wake):
            os.close(file)
        self.doorbell, self.events = os.fdopen(doorbell, "wb", 0), socket.socket(fileno=events)
        self.events.setblocking(False)
        return self

    def ring_bell(self):
        """Notify the daemon of posted requests."""
        at = BELL.offset_of("posted") // 8
        count = int.from_bytes(self.bell[at : at + 4], "little") + 1
        self.bell[at : at + 4] = (count % (1 << 32)).to_bytes(4, "little")
        asleep = BELL.offset_of("asleep") // 8
        if self.bell[asleep]:
            self.bell[asleep] = 0
            os.eventfd_write(self.doorbell.fileno(), 1)

    def memory(self, pages, pd, access=15):
        """Register memory at address :data:`VA`; return its mapping and its keys."""
        mapping = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.shared = self.share()
        return mapping, self.register(self.shared, address_of(mapping), pages * PAGE, pd, access)

    def register(self, memory, address, length, pd, access=15):
        """Register a range of a shared memory at address :data:`VA`; return its keys."""
        return self.call(Opcode.REG_MR, pd=pd, access=access, memory=memory, address=address, iova=VA,
                         length=length)[0]

    def share(self, file=None):
        """Give the daemon a process's memory, or the memory of this process; return its handle."""
        own = own_memory() if file is None else os.dup(file)
        try:
            return self.call(Opcode.SHARE, files=[own])[0].handle
        finally:
            os.close(own)

    def close(self):
        for each in (self.socket, self.doorbell, self.events):
            if each is not None:
                each.close()

    __del__ = close     # as if the process ended


class RawEnd(RawClient):
    """Program with a PD, memory of two pages, a CQ of at least ``cqe`` entries and a QP."""

    qp_type = QPType.RC

    def __init__(self, daemon, host, cqe=SLOTS):
        super().__init__(daemon, host)
        self.greet()
        self.pd = self.call(Opcode.ALLOC_PD)[0].handle
        self.mapping, self.keys = self.memory(2, self.pd)
        made, (file,) = self.call(Opcode.CREATE_CQ, user=1, cqe=cqe)
        self.cq, self.completions = made.handle, Ring(file, made.slots, WC_SLOT.size_bytes)
        self.qp, files = self.call(
            Opcode.CREATE_QP, user=2, pd=self.pd, send_cq=self.cq, recv_cq=self.cq, qp_type=self.qp_type, sq_sig_all=1,
            max_send_wr=SLOTS, max_recv_wr=SLOTS, max_send_sge=2, max_recv_sge=2, max_inline_data=64)
        self.sends = Ring(files[0], self.qp.send_slots, self.qp.send_slot_bytes)
        self.receives = Ring(files[1], self.qp.recv_slots, self.qp.recv_slot_bytes)

    def connect(self, peer, retry_cnt=2, rnr_retry=7, min_rnr_timer=1, timeout=1):
        """Bring the QP to RTS, with short time-outs."""
        for goal, mask, fields in (
                (QPState.INIT, Mask.PKEY_INDEX | Mask.PORT | Mask.ACCESS_FLAGS, {"port_num": 1, "qp_access_flags": 15}),
                (QPState.RTR, Mask.AV | Mask.PATH_MTU | Mask.DEST_QPN | Mask.RQ_PSN | Mask.MAX_DEST_RD_ATOMIC
                 | Mask.MIN_RNR_TIMER, {"path_mtu": 3, "dest_qp_num": peer.qp.qp_num, "dgid": peer.welcome.gid,
                                        "is_global": 1, "ah_port_num": 1, "hop_limit": 1, "max_dest_rd_atomic": 4,
                                        "min_rnr_timer": min_rnr_timer}),
                (QPState.RTS, Mask.SQ_PSN | Mask.TIMEOUT | Mask.RETRY_CNT | Mask.RNR_RETRY | Mask.MAX_QP_RD_ATOMIC,
                 {"timeout": timeout, "retry_cnt": retry_cnt, "rnr_retry": rnr_retry, "max_rd_atomic": 4})):
            self.call(Opcode.MODIFY_QP, handle=self.qp.handle, mask=Mask.STATE | mask, qp_state=goal, **fields)

    def write(self, peer, wr_id=1, opcode=WROpcode.RDMA_WRITE, length=PAGE):
        """Post a write of a page to the peer's memory, or another operation on it."""
        self.sends.fill(
            SEND_SLOT.pack(wr_id=wr_id, opcode=opcode, flags=SendFlags.SIGNALED, num_sge=1,
                           remote_addr=VA, rkey=peer.keys.rkey)
            + SGE_SLOT.pack(addr=VA, length=length, lkey=self.keys.lkey))
        self.ring_bell()

    def completion(self):
        """Wait for exactly one completion and return it."""
        (found,) = self.completed(1)
        return found

    def completed(self, count):
        """Wait until at least ``count`` completions have come; return all that are available."""
        found = []
        for _ in range(TURNS_MAX):
            found += self.completions.take()
            if len(found) >= count:
                return found
            self.daemon.turn()
        raise AssertionError(f"{len(found)} completions")
