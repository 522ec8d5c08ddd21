"""Carries frames between an endpoint and a port."""


class Pump:
    """One endpoint at one port.

    Parameters
    ----------
    endpoint : object
        ``receive(frame, now)`` takes a frame; ``process(now)`` does what is due and returns when to be called again
        at the latest, or None; ``take_frames(most)`` gives frames to send.
    port : object
        ``receive()`` gives the frames that came; ``room`` says how many ``send(frame)`` can take now.
    """

    def __init__(self, endpoint, port):
        self.endpoint, self.port = endpoint, port

    def round(self, now):
        """Carry everything that can be carried; when to come again at the latest, or None."""
        for frame in self.port.receive():
            self.endpoint.receive(frame, now)
        deadline = self.endpoint.process(now)
        while self.port.room and (frames := self.endpoint.take_frames(self.port.room)):
            for frame in frames:
                self.port.send(frame)
            deadline = self.endpoint.process(now)
        return deadline
