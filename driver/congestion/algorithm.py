"""Interface of the congestion control algorithms.

An algorithm is one object per connection. Its owner reports events, each with the time, and afterwards reads ``rate``
and ``limit``. The owner knows the rate of its port, and the round trip time of an empty path from the set-up of the
connection: both are arguments of the constructor, so that every decision is bounded from the start.

The methods use fields of ``self`` and functions of their module only, and fields are numbers. So
:mod:`weft.model.fabric.rules` compiles these methods for simulation: there is no second version of a rule.
"""

from typing import Protocol

UNLIMITED = 1 << 62
NS_BITS = 8e9           # bytes per nanosecond in bit/s
BDPS_MAX = 2            # bandwidth-delay products that may be in flight


class Algorithm(Protocol):
    """Congestion control of one connection.

    The constructor takes the settings, the rate of the port in bit/s, and the round trip time of the empty path in ns.

    Attributes
    ----------
    rate
        Rate at which the connection may send, in bit/s, of bytes on the wire.
    limit
        Bytes that may be in flight: sent, and neither acknowledged nor reported lost.
    """

    rate: float
    limit: int

    def on_ack(self, now_ns: float, acked: int, in_flight: int) -> None:
        """Process an acknowledgement of ``acked`` bytes; ``in_flight`` bytes were in flight before it."""

    def on_delay(self, now_ns: float, rtt_ns: float) -> None:
        """Process a round trip time; it precedes the :meth:`on_ack` of the same acknowledgement."""

    def on_cnp(self, now_ns: float) -> None:
        """Process a congestion notification packet."""

    def on_time(self, now_ns: float) -> None:
        """Process the time that has passed: packets left the port. Acknowledgements may be far away at a low rate."""

    def on_loss(self, now_ns: float, lost: int) -> None:
        """Process a report of ``lost`` lost bytes."""
