"""Programs on the model of the card in time."""

from weft.model.card.host import TimedDevice
from weft.tb.app.stage import functional


def play(*settings):
    """See :func:`weft.tb.app.stage.stage.play`."""
    return functional.play(*settings, device_type=TimedDevice)
