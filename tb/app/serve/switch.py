"""Ethernet switch without loss and delay."""

from collections.abc import Callable

from weft.model.fabric.frame.header import is_group
from weft.model.impairments import Frame, addresses_of

HEADER_BYTES = 14


class Switch:
    """Switch that passes a frame to the port of its destination, and one to a group address to all other ports.

    Attributes
    ----------
    ports
        Receivers of frames, by MAC address.
    uplink
        Receiver of frames for other addresses, and for groups.
    """

    def __init__(self) -> None:
        self.ports: dict[bytes, Callable[[Frame], object]] = {}
        self.uplink: Callable[[Frame], object] | None = None

    def carry(self, frame: Frame) -> None:
        """Pass a frame to its destination; drop it if there is none."""
        if self.uplink is not None and addresses_of(frame)[:6] not in self.ports:
            self.uplink(frame)
        self.deliver(frame)

    def deliver(self, frame: Frame) -> None:
        """Pass a frame to the local ports only."""
        addresses = addresses_of(frame)
        to = addresses[:6]
        if to in self.ports:
            self.ports[to](frame)
        elif is_group(to):
            for mac, port in self.ports.items():
                if mac != addresses[6:]:
                    port(frame)
