"""An Ethernet switch that loses nothing and takes no time."""

BROADCAST, HEADER_BYTES = b"\xff" * 6, 14


class Switch:
    """Frames go to the port of their destination, or to all others.

    Attributes
    ----------
    ports : dict of bytes to callable(frame)
        What takes frames, by MAC address.
    uplink : callable(frame) or None
        Takes those for others, and those for all.
    """

    def __init__(self):
        self.ports, self.uplink = {}, None

    def carry(self, frame):
        """Hand a frame to whom it is for; one for nobody is gone."""
        if self.uplink is not None and bytes(frame)[:6] not in self.ports:
            self.uplink(frame)
        self.hand_out(frame)

    def hand_out(self, frame):
        """The same for a frame that came by the uplink, or does not need it."""
        data = frame if isinstance(frame, bytes) else bytes(frame)
        to, source = data[:6], data[6:12]
        if to in self.ports:
            self.ports[to](frame)
        elif to == BROADCAST:
            for mac, port in self.ports.items():
                if mac != source:
                    port(frame)
