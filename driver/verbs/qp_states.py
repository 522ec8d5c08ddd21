"""Transitions between the states of queue pairs, and their attributes (IBTA 1.7, chapter 10.3)."""

from ..terms.enums import QPAttrMask as Mask
from ..terms.enums import QPState, QPType
from ..terms.errors import InvalidValue

_OF_INIT = Mask.PKEY_INDEX | Mask.PORT | Mask.ACCESS_FLAGS
_WHILE_SENDING = Mask.CUR_STATE | Mask.ALT_PATH | Mask.ACCESS_FLAGS | Mask.MIN_RNR_TIMER | Mask.PATH_MIG_STATE
NOTHING = Mask(0)

# (state, next state) of a reliable connection: required attributes, optional attributes; STATE is implied. In addition
# every state has a transition to RESET, and every state except RESET one to ERR, both without attributes.
TRANSITIONS = {
    (QPState.RESET, QPState.INIT): (_OF_INIT, NOTHING),
    (QPState.INIT, QPState.INIT): (NOTHING, _OF_INIT),
    (QPState.INIT, QPState.RTR): (
        Mask.AV | Mask.PATH_MTU | Mask.DEST_QPN | Mask.RQ_PSN | Mask.MAX_DEST_RD_ATOMIC | Mask.MIN_RNR_TIMER,
        Mask.ALT_PATH | Mask.ACCESS_FLAGS | Mask.PKEY_INDEX),
    (QPState.RTR, QPState.RTS): (
        Mask.TIMEOUT | Mask.RETRY_CNT | Mask.RNR_RETRY | Mask.SQ_PSN | Mask.MAX_QP_RD_ATOMIC, _WHILE_SENDING),
    (QPState.RTS, QPState.RTS): (NOTHING, _WHILE_SENDING),
    (QPState.RTS, QPState.SQD): (NOTHING, Mask.EN_SQD_ASYNC_NOTIFY),
    (QPState.SQD, QPState.RTS): (NOTHING, _WHILE_SENDING),
    (QPState.SQD, QPState.SQD): (
        NOTHING, _WHILE_SENDING & ~Mask.CUR_STATE | Mask.PORT | Mask.AV | Mask.TIMEOUT | Mask.RETRY_CNT
        | Mask.RNR_RETRY | Mask.MAX_QP_RD_ATOMIC | Mask.MAX_DEST_RD_ATOMIC | Mask.PKEY_INDEX),
}
_UD_INIT = Mask.PKEY_INDEX | Mask.PORT | Mask.QKEY
_UD_SENDING = Mask.CUR_STATE | Mask.QKEY
UD_TRANSITIONS = {
    (QPState.RESET, QPState.INIT): (_UD_INIT, NOTHING),
    (QPState.INIT, QPState.INIT): (NOTHING, _UD_INIT),
    (QPState.INIT, QPState.RTR): (NOTHING, Mask.PKEY_INDEX | Mask.QKEY),
    (QPState.RTR, QPState.RTS): (Mask.SQ_PSN, _UD_SENDING),
    (QPState.RTS, QPState.RTS): (NOTHING, _UD_SENDING),
    (QPState.RTS, QPState.SQD): (NOTHING, Mask.EN_SQD_ASYNC_NOTIFY),
    (QPState.SQD, QPState.RTS): (NOTHING, _UD_SENDING),
    (QPState.SQD, QPState.SQD): (NOTHING, Mask.PKEY_INDEX | Mask.QKEY),
    (QPState.SQE, QPState.RTS): (NOTHING, _UD_SENDING),
}
_OF_TYPE = {QPType.RC: TRANSITIONS, QPType.UD: UD_TRANSITIONS}


def necessary(start: QPState, goal: QPState, qp_type: QPType = QPType.RC) -> Mask:
    """Return the smallest mask of a transition: STATE and the required attributes."""
    return Mask.STATE | _OF_TYPE[qp_type][start, goal][0]


def check_transition(start: QPState, goal: QPState, mask: Mask, qp_type: QPType = QPType.RC) -> None:
    """Raise InvalidValue if no transition leads from ``start`` to ``goal``, or if ``mask`` does not fit it."""
    transitions = _OF_TYPE[qp_type]
    if goal is QPState.RESET or goal is QPState.ERR and start is not QPState.RESET:
        need, may = NOTHING, NOTHING
    elif (start, goal) in transitions:
        need, may = transitions[start, goal]
    elif start is goal:
        raise InvalidValue(f"no attribute of a QP can be changed while it is {start.name}")
    else:
        raise InvalidValue(f"a QP that is {start.name} cannot become {goal.name}")
    if missing := need & ~mask:
        raise InvalidValue(f"from {start.name} to {goal.name} also these have to be given: {_names(missing)}")
    if beyond := int(mask) & ~int(need | may | Mask.STATE):
        raise InvalidValue(f"from {start.name} to {goal.name} these cannot be given: {_names(beyond)}")


def _names(mask: int) -> str:
    known = [name for name, bit in Mask.__members__.items() if bit & mask]
    return ", ".join(known) or f"{int(mask):#x}"
