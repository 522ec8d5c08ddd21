"""Teardown of a context: ordered destruction of its objects, with or without the card."""

import contextlib
from typing import TYPE_CHECKING

from ..device.bringup import reset_card
from ..device.health import DeviceFatal
from ..terms.errors import TimedOut

if TYPE_CHECKING:
    from .context import Context


def end_mine(context: "Context") -> None:
    """Destroy all objects of one context: QPs first, then MRs and PDs, then CQs and channels, each oldest first.

    Raises
    ------
    CommandError, CommandTimeout, DeviceFatal
        If the card rejects a command, does not answer, or is gone.
    """
    for pd in list(context.pds):
        for qp in list(pd.qps):
            qp.close()
    _close_the_rest(context)


def end_all(context: "Context") -> None:
    """Destroy all objects of the only context of a card, as :func:`end_mine` does, and wait until the card is idle.

    Raises
    ------
    CommandError, CommandTimeout, DeviceFatal, TimeoutError
        If the card rejects a command, does not answer, or is gone, or if an earlier command is still unanswered.
    """
    end_mine(context)
    context.engine.time_wait.end()
    context.run_until(lambda: not context.transmitting and not context.knitting.changing, context.commands.timeout_ns)
    if context.kept:
        raise TimedOut("the card never answered a command")        # of this context, or of one that is leaving


def abandon_all(context: "Context") -> None:
    """Destroy all objects without the cooperation of the card: a reset removes all of its state.

    Raises
    ------
    TimeoutError
        If the card does not come out of reset.
    """
    with contextlib.suppress(DeviceFatal):      # a card that is gone accesses no memory
        reset_card(context.device)
    context.engine.forget()
    context.card.release_kept()
    forget_mine(context)


def forget_mine(context: "Context") -> None:
    """Destroy all objects of one context after a reset of its card, which has none of them any more."""
    for pd in list(context.pds):
        for mr in list(pd.mrs):
            mr.forget()
    _close_the_rest(context)


def _close_the_rest(context: "Context") -> None:
    for table in (context.pds, context.cqs, context.channels):
        for each in list(table):
            each.close()
