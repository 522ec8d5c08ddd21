"""Software endpoint at the Simple NIC of a card, in a program of :mod:`weft.tb.app.stage`."""

from weft.driver.soft.ports import Pump, SimpleNicPort
from weft.driver.terms.errors import TimedOut

STEP_NS = 5_000


class SpoilingPort:
    """Port that loses or damages some of the frames that it sends."""

    def __init__(self, port):
        self._port, self._sent, self._spoil = port, 0, {}

    def spoil(self, ahead, change):
        """Replace the frame that is sent after ``ahead`` others by ``change(frame)``; None: it is lost."""
        self._spoil[self._sent + ahead] = change

    def receive(self):
        return self._port.receive()

    @property
    def space(self):
        return self._port.space

    def send(self, frame):
        self._sent += 1
        if self._sent - 1 in self._spoil:
            frame = self._spoil.pop(self._sent - 1)(frame)
        if frame is not None:
            self._port.send(frame)


class CardEnd:
    """Endpoint at the card of a host.

    Parameters
    ----------
    host : weft.tb.app.stage.host.Host
    endpoint : Endpoint or SoftContext
    wanted : callable(frame, entry)
        Selects the raw frames of the endpoint.

    Attributes
    ----------
    port : SpoilingPort
    """

    def __init__(self, host, endpoint, wanted):
        self.host = host
        self.port = SpoilingPort(SimpleNicPort(host.context, wanted))
        self._pump = Pump(endpoint, self.port)

    def step(self):
        """Run the endpoint once, and let time pass until it is due again."""
        deadline, now = self._pump.round(self.host.now_ns), self.host.now_ns
        self.host.pass_time(max(1, STEP_NS if deadline is None else min(STEP_NS, deadline - now)))

    def until(self, condition):
        """Run until ``condition()`` is true.

        Raises
        ------
        TimedOut
        """
        end = self.host.now_ns + self.host.silence_ns
        while not condition():
            self.step()
            if self.host.now_ns > end:
                raise TimedOut(f"host {self.host.side} received nothing")

    def receive(self):
        """Return the next message of the other program."""
        self.until(lambda: self.host.has_values)
        return self.host.receive()
