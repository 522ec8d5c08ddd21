"""How a context ends what lives on it."""

import contextlib

from ..device.bringup import reset_card
from ..device.health import DeviceFatal
from ..terms.errors import TimedOut


def end_mine(context):
    """Destroy everything of one context: QPs first, then MRs and PDs, then CQs and channels, each oldest first.

    Raises
    ------
    CommandError, CommandTimeout, DeviceFatal
        If the card does not take part.
    """
    for pd in list(context.pds):
        for qp in list(pd.qps):
            qp.close()
    _close_the_rest(context)


def end_all(context):
    """The same for the only context of a card; wait until the card is idle.

    Raises
    ------
    CommandError, CommandTimeout, DeviceFatal, TimeoutError
        If the card does not take part, or left a command unanswered before.
    """
    end_mine(context)
    context.engine.departed.end()
    context.run_until(lambda: not context.transmitting and not context.knitting.changing, context.commands.timeout_ns)
    if context.kept:
        raise TimedOut("the card never answered a command")


def abandon_all(context):
    """The same without the card, which is reset and forgets everything at once.

    Raises
    ------
    TimeoutError
        If it does not come out of reset.
    """
    with contextlib.suppress(DeviceFatal):      # a card that is gone touches nothing
        reset_card(context.device)
    context.engine.forget()
    for pd in list(context.pds):
        for mr in list(pd.mrs):
            mr.forget()
    _close_the_rest(context)


def _close_the_rest(context):
    for table in (context.pds, context.cqs, context.channels):
        for each in list(table):
            each.close()
