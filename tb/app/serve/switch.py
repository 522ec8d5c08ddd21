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
        port = self.ports.get(addresses_of(frame)[:6])
        if port is not None:
            port(frame)
            return
        if self.uplink is not None:
            self.uplink(frame)
        self._deliver_to_group(frame)

    def deliver(self, frame: Frame) -> None:
        """Pass a frame to the local ports only."""
        port = self.ports.get(addresses_of(frame)[:6])
        if port is not None:
            port(frame)
        else:
            self._deliver_to_group(frame)

    def _deliver_to_group(self, frame: Frame) -> None:
        addresses = addresses_of(frame)
        if is_group(addresses[:6]):
            for mac, port in self.ports.items():
                if mac != addresses[6:]:
                    port(frame)
