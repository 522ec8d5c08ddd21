"""Back ends at the other end of the guest's link: the software endpoint, or a card with its driver."""

import random
import select
import time

from weft.driver.soft.ports import Pump, SimpleNicPort, for_host_qpns
from weft.driver.soft.rc.context import SoftContext
from weft.driver.verbs.context import Context, ContextConfig
from weft.hdl.contract import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop

MAC, IP = 0x02_00_00_00_00_0A, 0x0A_00_00_0A
QPNS = (0x40_0000, 256)     # QPNs of software at a card
MOMENT_S = 0.02


class LossyPort:
    """Port that loses frames at random in both directions, and counts them."""

    def __init__(self, port, loss, seed):
        self._port, self.loss, self._random, self.lost = port, loss, random.Random(seed), 0

    def _passes(self, _frame):
        lost = self._random.random() < self.loss
        self.lost += lost
        return not lost

    def receive(self):
        return list(filter(self._passes, self._port.receive()))

    @property
    def space(self):
        return self._port.space

    def send(self, frame):
        if self._passes(frame):
            self._port.send(frame)

    def fileno(self):
        return self._port.fileno()


class SoftEnvironment:
    """Software endpoint directly at the guest's link, in real time."""

    def __init__(self, guest, loss=0.0, seed=0):
        self.guest, self.wire = guest, LossyPort(guest.port, loss, seed)
        self.soft = SoftContext(mac=MAC, ip=IP)
        self._pump = Pump(self.soft, self.wire)

    def step(self):
        """Do all pending work, and wait a moment at most for more."""
        now = time.monotonic_ns()
        deadline = self._pump.round(now)
        wait = MOMENT_S if deadline is None else max(0, min(MOMENT_S, (deadline - now) / 1e9))
        select.select([self.wire, self.guest], [], [], wait)


class RealTimeCard(FunctionalDevice):
    """Functional card whose link is a port, and whose clock does not run ahead of real time."""

    def __init__(self, port, seed=0):
        super().__init__(EventLoop(), seed=seed)
        self.port, self.transmit, self._start = port, lambda frame: port.send(bytes(frame)), time.monotonic_ns()

    def wait(self, timeout_ns):
        end = self.loop.now_ns + timeout_ns
        while not self._latched:
            now = time.monotonic_ns() - self._start
            for frame in self.port.receive():
                self.card.receive(frame)
            self.loop.run(max(self.loop.now_ns, min(now, end)), lambda: self._latched)
            if self.loop.now_ns >= end or self._latched:
                break
            select.select([self.port], [], [], min(MOMENT_S, (end - self.loop.now_ns) / 1e9))
        latched, self._latched = self._latched, False
        return latched


class CardEnvironment:
    """Card with its driver, and a software endpoint at its Simple NIC; a step waits for ``step_ns`` at most."""

    def __init__(self, guest, device, step_ns=2_000_000):
        rings = {abi.Ring.NIC_RX: 9, abi.Ring.NIC_TX: 7}
        self.guest, self.device, self._step_ns = guest, device, step_ns
        self.context = Context(device, mac=MAC, ip=IP, config=ContextConfig(ring_log2=rings, nic_slot_log2=13))
        self.context.host_qpns.claim(*QPNS)
        self.soft = SoftContext(mac=MAC, ip=IP, first_qpn=QPNS[0], max_qp=QPNS[1])
        self._port = SimpleNicPort(self.context, for_host_qpns)
        self._pump = Pump(self.soft, self._port)

    def step(self):
        """Do all pending work, and wait ``step_ns`` at most for more."""
        busy = self.context.progress()
        deadline = self._pump.round(self.device.now_ns())
        wait = self._step_ns if deadline is None else min(self._step_ns, deadline - self.device.now_ns())
        self.context.wait(1 if busy else max(1, wait))

    def close(self):
        """Close port and context, which stops the card."""
        self._port.close()
        self.context.close()
