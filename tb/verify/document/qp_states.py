"""States of a QP and how one gets from one to another, found by trying every way on functional cards."""

from weft.driver.terms.enums import QPAttrMask, QPState
from weft.driver.verbs.addr import AHAttr, GlobalRoute
from weft.driver.verbs.context import Context
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, rc_init_attr
from weft.driver.verbs.qp_states import TRANSITIONS, necessary
from weft.model.functional.host import connected_pair

WAYS = {
    QPState.RESET: (),
    QPState.INIT: (QPState.INIT,),
    QPState.RTR: (QPState.INIT, QPState.RTR),
    QPState.RTS: (QPState.INIT, QPState.RTR, QPState.RTS),
    QPState.SQD: (QPState.INIT, QPState.RTR, QPState.RTS, QPState.SQD),
    QPState.ERR: (QPState.INIT, QPState.RTR, QPState.RTS, QPState.ERR),
}


def _modify(qp, peer, state):
    route = AHAttr(is_global=1, gr=GlobalRoute(dgid=peer.gid))
    mask = necessary(qp.qp_state, state) if (qp.qp_state, state) in TRANSITIONS else QPAttrMask.STATE
    qp.modify(QPAttr(qp_state=state, rq_psn=peer.psn, dest_qp_num=peer.qpn, ah_attr=route), mask)


def transitions():
    """``[(state, next state), ...]`` that ``QP.modify`` does."""
    _, devices, _ = connected_pair()
    contexts = [Context(device, mac=0x02_0000_0000_01 + i, ip=0x0A00_0001 + i) for i, device in enumerate(devices)]
    found = []
    for start, way in WAYS.items():
        for goal in QPState:
            qps = []
            for context in contexts:
                cq = CQ(context, 4)
                qps.append(QP(PD(context), rc_init_attr(cq)))
            qp, peer = qps[0], qps[1].connection
            for step in way:
                _modify(qp, peer, step)
            assert qp.qp_state is start
            try:
                _modify(qp, peer, goal)
            except ValueError:
                assert qp.qp_state is start, "a refused transition changed the state"
            else:
                assert qp.qp_state is goal
                if goal is not start:
                    found.append((start, goal))
            for each in qps:
                each.close()
    for context in contexts:
        context.close()
    return found


def diagram():
    """Mermaid state diagram, and in words where every state may go."""
    found = transitions()
    others = set(WAYS) - {QPState.RESET}
    anywhere = [goal for goal in QPState if {start for start, end in found if end is goal} >= others - {goal}]
    lines = ["```mermaid", "stateDiagram-v2", "  [*] --> RESET"]
    lines += [f"  {start.name} --> {goal.name}" for start, goal in found if goal not in anywhere]
    lines += [f"  {start.name} --> {goal.name}" for start, goal in found
              if goal in anywhere and start in (QPState.RTS, QPState.SQD, QPState.ERR)]
    ways = " and to ".join(f"`{goal.name}`" for goal in anywhere)
    lines += ["```", "", f"From every state but `RESET` `modify` also leads to {ways}."]
    return "\n".join(lines)
