"""Asynchronous events (ibv_async_event)."""

from dataclasses import dataclass

from ..terms.enums import EventType


@dataclass(frozen=True)
class AsyncEvent:
    """Something went wrong that no work request asked for; ``element`` is the object it happened to, ``reason`` a
    sentence if there is one."""

    event_type: EventType
    element: object
    reason: str = ""

    def ack(self):
        """It is done with (ibv_ack_async_event); nothing waits for that here."""
