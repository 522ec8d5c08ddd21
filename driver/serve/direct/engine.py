"""Interface to the compiled code that executes requests: see ``direct.h``."""

import contextlib
import ctypes
import itertools
import os

from ...terms.errors import OutOfResources

_NOTICES = 1024      # that are handed over at once: a program may cause them without end
_PTR, _INT, _U32, _U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
# How long the thread looks for posted requests before it sleeps. With few processors the programs need the time more.
SPIN_NS, SPIN_SHORT_NS, FEW_PROCESSORS = 50_000, 2_000, 2


class Notice(ctypes.Structure):
    """News of an object: ``tag`` is that of :meth:`Engine.tag`."""

    _fields_ = (("tag", _U64), ("kind", _U32), ("event", _U32))


class Attributes(ctypes.Structure):
    """Attributes of a QP; all of them are set together."""

    _fields_ = (*((name, _U32) for name in (
        "state", "peer_ip", "peer_qpn", "send_psn", "expected_psn", "access", "max_rd_atomic", "max_dest_rd_atomic")),
        ("rnr_ns", _U64), ("timeout_ns", _U64), ("retry_cnt", _U32), ("rnr_retry", _U32), ("qkey", _U32))


# Result and arguments of each function, whose name in the library begins with ``weft_direct_``.
_FUNCTIONS = {
    "start": (_PTR, _INT, _U64), "stop": (None, _PTR), "lock": (None, _PTR), "unlock": (None, _PTR),
    "notices": (ctypes.c_size_t, _PTR, _PTR, ctypes.c_size_t),
    "host": (_PTR, _PTR, _U32, _U32), "client": (_PTR, _PTR, _U64, _PTR, _INT, _INT), "client_close": (None, _PTR),
    "copying": (_U64, _PTR, ctypes.POINTER(_U64)), "traffic": (None, _PTR, _PTR), "why": (ctypes.c_char_p, _PTR),
    "region": (_INT, _PTR, _U32, _U32, _U32, _U32, _U32, _U64, _U64, _U64, _INT, _INT),
    "region_close": (None, _PTR, _U32),
    "cq": (_PTR, _PTR, _U64, _U64, _INT, _PTR, _U32, _U32), "cq_ring": (None, _PTR, _PTR, _U32, _U32, _U32),
    "cq_own": (_U32, _PTR), "cq_overrun": (_INT, _PTR), "cq_close": (None, _PTR),
    "srq": (_PTR, _PTR, _U64, _U32, _PTR, _U32, _U32), "srq_ring": (None, _PTR, _PTR, _U32, _U32),
    "srq_own": (_U32, _PTR), "srq_filled": (_U32, _PTR), "srq_limit": (_U32, _PTR), "srq_set_limit": (None, _PTR, _U32),
    "srq_close": (None, _PTR),
    "qp": (_PTR, _PTR, _U64, _U32, _U32, _PTR, _PTR, _PTR, _U32, _U32, _U32, _U32, _U32),
    "qp_rings": (_INT, _PTR, _PTR, _U32, _U32, _PTR, _U32, _U32), "qp_modify": (None, _PTR, ctypes.POINTER(Attributes)),
    "qp_run": (None, _PTR), "qp_drain": (None, _PTR, _INT), "qp_fail": (None, _PTR, _U32), "qp_error": (_INT, _PTR),
    "qp_draining": (_INT, _PTR), "qp_send_error": (_INT, _PTR), "qp_resume": (None, _PTR),
    "qp_join": (_INT, _PTR, _U32), "qp_leave": (None, _PTR, _U32), "qp_reset": (None, _PTR), "qp_close": (None, _PTR),
}


def address_of(mapping):
    """Return the address of an ``mmap.mmap``; it is valid until the mapping is closed."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def ring_arguments(ring):
    """Return address, number of slots and their size of a SharedRing."""
    return address_of(ring.mapping), ring.slots, ring.slot_bytes


class Engine:
    """Thread that executes requests, and its objects, which are addresses.

    Parameters
    ----------
    library : path
        Of ``libweft-direct.so``.

    Attributes
    ----------
    news : int
        Descriptor that is readable while there are notices.
    hosts : dict of str to int
        Hosts by the name of their device.
    objects : dict of int to object
        Recipients of notices, by tag. Each has ``on_notice(kind, event)``.
    """

    def __init__(self, library):
        functions = ctypes.CDLL(str(library))
        self._functions = {}
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(functions, f"weft_direct_{name}")
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function
        self.notices = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.hosts, self.objects, self._tags = {}, {}, itertools.count(1)
        spin_ns = SPIN_NS if len(os.sched_getaffinity(0)) > FEW_PROCESSORS else SPIN_SHORT_NS
        self._fabric = self._functions["start"](self.notices, spin_ns)
        if not self._fabric:
            os.close(self.notices)
            raise OutOfResources("no memory or descriptor is left for the direct back end")
        self._notices, self._more = (Notice * _NOTICES)(), False

    @contextlib.contextmanager
    def held(self):
        """Return a context manager that stops the thread from executing requests; it may be nested."""
        self._functions["lock"](self._fabric)
        try:
            yield
        finally:
            self._functions["unlock"](self._fabric)

    def call(self, name, *arguments):
        """Call a function of the library under its lock."""
        functions, fabric = self._functions, self._fabric
        functions["lock"](fabric)
        try:
            return functions[name](*arguments)
        finally:
            functions["unlock"](fabric)

    def new(self, name, *arguments):
        """Return a new object. Raise OutOfResources if there is no memory for it."""
        made = self.call(name, *arguments)
        if not made:
            raise OutOfResources(f"no memory is left for another {name} of the direct back end")
        return made

    def copying(self):
        """Return the number of the copy that takes place and its client, or None. A blocked thread has the lock."""
        tag = _U64()
        number = self._functions["copying"](self._fabric, tag)
        client = self.objects.get(tag.value) if number else None
        return client and (number, client)

    def tag(self, recipient):
        """Return a number for the notices to an object."""
        number = next(self._tags)
        self.objects[number] = recipient
        return number

    def add_host(self, name, ip, qp_slots):
        """Add the card with this name of its device; ``qp_slots`` is a power of two."""
        self.hosts[name] = self.new("host", self._fabric, ip, qp_slots)

    def deliver(self):
        """Hand the oldest notices to their recipients; return true if there were any.

        The lock is needed only then: a copy that blocks has it, and the daemon continues meanwhile.
        """
        if not self._more:
            try:
                os.eventfd_read(self.notices)
            except BlockingIOError:
                return False
        count = self._functions["notices"](self._fabric, self._notices, _NOTICES)
        self._more = count == _NOTICES
        for notice in self._notices[:count]:
            if (recipient := self.objects.get(notice.tag)) is not None:
                recipient.on_notice(notice.kind, notice.event)
        return count > 0

    @property
    def counts(self):
        """Numbers of completed requests and of their bytes."""
        if self._fabric is None:
            return self._counts
        sent = [self.traffic(name) for name in self.hosts]
        return sum(each[0] for each in sent), sum(each[1] for each in sent)

    def traffic(self, name):
        """Return the messages and their bytes that a host sent, and those that it received."""
        found = (_U64 * 4)()
        self.call("traffic", self.hosts[name], found)
        return tuple(found)

    def close(self):
        """End the thread, after all objects."""
        self._counts = self.counts
        self._functions["stop"](self._fabric)
        self._fabric = None
        os.close(self.notices)
