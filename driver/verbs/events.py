"""Asynchronous events (ibv_async_event)."""

from dataclasses import dataclass

from ..terms.enums import EventType


@dataclass(frozen=True)
class AsyncEvent:
    """Event that does not belong to a work request.

    ``element`` is the object it happened to, ``reason`` a sentence or empty.
    """

    event_type: EventType
    element: object
    reason: str = ""

    def ack(self) -> None:
        """Acknowledge the event (ibv_ack_async_event); without effect, because no call waits for it."""
