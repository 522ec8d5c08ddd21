"""Hosts with a compiled card."""

from ..host import TimedDevice
from .card import CompiledCard


class CompiledDevice(TimedDevice):
    """:class:`~weft.model.card.host.TimedDevice` whose card's pipelines are machine code: the same at the same times,
    done in a fraction of the time. Needs numba, which compiles for half a minute when the model has changed."""

    card_type = CompiledCard
