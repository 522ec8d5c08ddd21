"""Transfer of frames between an endpoint and a port."""


class Pump:
    """Connection of one endpoint and one port.

    Parameters
    ----------
    endpoint : object
        ``receive(frame, now)`` takes a frame; ``process(now)`` does everything that is due and returns the latest time
        of the next call, or None; ``take_frames(most)`` returns frames to send.
    port : object
        ``receive()`` returns the received frames; ``space`` is the number of frames that ``send(frame)`` can take now.
    """

    def __init__(self, endpoint, port):
        self.endpoint, self.port = endpoint, port

    def round(self, now):
        """Transfer all frames that can be transferred; return the latest time of the next call, or None."""
        for frame in self.port.receive():
            self.endpoint.receive(frame, now)
        deadline = self.endpoint.process(now)
        while self.port.space and (frames := self.endpoint.take_frames(self.port.space)):
            for frame in frames:
                self.port.send(frame)
            deadline = self.endpoint.process(now)
        return deadline
