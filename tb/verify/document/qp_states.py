"""State diagram of a QP, from the transitions that ``QP.modify`` allows."""

from weft.driver.terms.enums import QPState
from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.qp_states import TRANSITIONS, check_transition, necessary

STATES = [state for state in QPState if state not in (QPState.SQE, QPState.UNKNOWN)]


def _allowed(start, goal):
    try:
        check_transition(start, goal, necessary(start, goal) if (start, goal) in TRANSITIONS else 0)
    except InvalidValue:
        return False
    return True


def diagram():
    """Return a Mermaid state diagram, and a sentence with the states that every state but RESET may enter."""
    found = [(start, goal) for start in STATES for goal in QPState if goal is not start and _allowed(start, goal)]
    others = set(STATES) - {QPState.RESET}
    anywhere = [goal for goal in QPState if {start for start, end in found if end is goal} >= others - {goal}]
    lines = ["```mermaid", "stateDiagram-v2", "  [*] --> RESET"]
    lines += [f"  {start.name} --> {goal.name}" for start, goal in found if goal not in anywhere]
    lines += [f"  {start.name} --> {goal.name}" for start, goal in found
              if goal in anywhere and start in (QPState.RTS, QPState.SQD, QPState.ERR)]
    directions = " and to ".join(f"`{goal.name}`" for goal in anywhere)
    lines += ["```", "", f"From every state but `RESET` `modify` also leads to {directions}."]
    return "\n".join(lines)
