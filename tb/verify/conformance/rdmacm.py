"""Environment of rdma-core's tests of RDMA CM: two threads that share a card, and the IP address of the card."""

import contextlib
import importlib
import queue
import threading
import types

from weft.driver.cm.card_agent import CardAgent
from weft.driver.cm.shared_context import HELD
from weft.driver.terms.errors import NotSupported
from weft.driver.verbs.device import add_device, remove_device
from weft.model.functional.live import LiveDevice
from weft.model.loop import EventLoop

NAME, ADDRESS = "weftcm", "10.0.0.77"
SKIPPED, RAISED = 5, 2     # exit codes that the tests know


def end_all(name):
    """Finish the identifiers that users of card ``name`` left open, as an operating system does when a process ends."""
    for held in [held for held in HELD.values() if held.name == name]:
        for identifier in list(CardAgent.of(held.context.card).users):
            identifier.finish()


class Process:
    """Process of the tests, run as a thread, because a card in memory cannot be shared across a fork.

    The two ends share no state except what the tests send.
    """

    running = set()

    def __init__(self, target, kwargs):
        self.running.add(self)
        self.exitcode, self._target, self._kwargs = None, target, kwargs
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.start, self.join, self.is_alive = self._thread.start, self._thread.join, self._thread.is_alive

    def _run(self):
        try:
            self._target(**self._kwargs)
            self.exitcode = 0
        except SystemExit as end:      # the tests exit in an exception handler
            absent = isinstance(end.__context__, NotSupported) and "does not exist here" in str(end.__context__)
            self.exitcode = SKIPPED if absent else end.code
        except BaseException:
            self.exitcode = RAISED
        self.running.discard(self)
        if not self.running:
            end_all(NAME)

    def terminate(self):
        """End the process as a signal does: its identifiers are destroyed, so that its pending calls raise."""
        self.exitcode = RAISED
        self.running.discard(self)
        if not self.running:
            end_all(NAME)


def _processes():
    context = types.SimpleNamespace(Barrier=threading.Barrier, Queue=queue.Queue, Process=Process)
    return types.SimpleNamespace(get_context=lambda kind: context)


@contextlib.contextmanager
def prepared():
    """Replace the tests' processes and addresses, and add a card that follows wall-clock time."""
    base = importlib.import_module("tests.base")
    device = LiveDevice(EventLoop())
    device.transmit = lambda frame: None
    add_device(device, mac=0x02_0000_0000_4D, ip=0x0A00_004D, name=NAME)
    before = base.mp, base.RDMATestCase._get_ip_mac

    def get_ip_mac(test, name, port, index):
        test.args.append([name, port, index, ADDRESS if name == NAME else None, None])

    base.mp, base.RDMATestCase._get_ip_mac = _processes(), get_ip_mac
    try:
        yield
    finally:
        base.mp, base.RDMATestCase._get_ip_mac = before
        with contextlib.suppress(Exception):      # objects that tests left open
            remove_device(NAME)
