"""Every argument of every verb, replaced by invalid values: the verbs' error with a message, and no leak."""

import dataclasses
import re

import pytest

from weft.driver.terms.enums import AccessFlag, QPState, ReregFlag, SendFlags, WCStatus, WROpcode
from weft.driver.terms.errors import PyverbsError
from weft.driver.verbs.addr import GID, AHAttr, GlobalRoute
from weft.driver.verbs.context import Context
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx, connected_attr, rc_init_attr
from weft.driver.verbs.qp_states import necessary
from weft.driver.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair

# Messages of Python itself; a proper message names the argument.
RAW = re.compile(
    "unhashable|object (has no|is not|cannot|of type)|not supported between|unsupported operand|must be .*, not")
ODD = [None, -1, 1 << 70, 1.5, "x", b"x", (), [7], {}, object(), int]
WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE
STEPS = [(QPState.RESET, QPState.INIT), (QPState.INIT, QPState.RTR), (QPState.RTR, QPState.RTS)]


class Scene:
    """Connected pair, and one object of each kind on host A."""

    def __init__(self):
        self.pair = OperationPair(8192, pair=make_pair(preset="test"))
        self.host = self.pair.hosts[0]
        self.context, self.pd = self.host.context, self.host.pd
        self.channel = CompChannel(self.context)
        self.cq = CQ(self.context, 8, None, self.channel)
        self.srq = SRQ(self.pd)

    def verbs(self):
        """Return (name, function of keyword arguments, valid arguments) of every verb."""
        s, mr = self, self.host.mr
        sge = {"addr": mr.buf, "length": 8, "lkey": mr.lkey}
        wr = {"wr_id": 1, "opcode": WROpcode.RDMA_WRITE, "num_sge": 1, "imm_data": 0, "sg": [SGE(**sge)],
              "send_flags": SendFlags.SIGNALED, "next_wr": None, "rkey": s.pair.hosts[1].mr.rkey,
              "remote_addr": s.pair.hosts[1].mr.buf, "compare_add": 0, "swap": 0}
        receive = {"wr_id": 1, "num_sge": 1, "sg": [SGE(**sge)], "next_wr": None}
        cap, caps = QPCap(4, 4, 1, 1, 0), dataclasses.asdict(QPCap(4, 4, 1, 1, 0))
        init = {"qp_type": 2, "qp_context": None, "scq": s.cq, "rcq": s.cq, "srq": None, "cap": cap, "sq_sig_all": 0}
        return [
            ("PD", PD, {"creator": s.context}),
            ("CompChannel", CompChannel, {"context": s.context}),
            ("CQ", CQ, {"context": s.context, "cqe": 4, "channel": s.channel, "comp_vector": 0}),
            ("MR", MR, {"creator": s.pd, "length": 64, "access": WRITE, "address": None, "page_bytes": None}),
            ("SRQ", SRQ, {"creator": s.pd, "attr": SrqInitAttr()}),
            ("SrqAttr", lambda **f: SRQ(s.pd, SrqInitAttr(SrqAttr(**f))),
             {"max_wr": 4, "max_sge": 1, "srq_limit": 0}),
            ("SRQ of a context", lambda **f: SRQ(s.context, SrqInitAttrEx(**f)),
             {"max_wr": 4, "pd": s.pd, "comp_mask": 0, "srq_type": 0}),
            ("QP", QP, {"creator": s.pd, "init_attr": rc_init_attr(s.cq), "qp_attr": None}),
            ("QPInitAttr", lambda **f: QP(s.pd, QPInitAttr(**f)), init),
            ("QPInitAttrEx", lambda **f: QP(s.context, QPInitAttrEx(**f)), {**init, "comp_mask": 0, "pd": s.pd}),
            ("QPCap", lambda **f: QP(s.pd, rc_init_attr(s.cq, **f)), caps),
            ("post_send", lambda **f: s.host.qp.post_send(SendWR(**f)), wr),
            ("SGE of a send", lambda **f: s.host.qp.post_send(SendWR(**{**wr, "sg": [SGE(**f)]})), sge),
            ("post_recv", lambda **f: s.host.qp.post_recv(RecvWR(**f)), receive),
            ("SGE of a receive", lambda **f: s.host.qp.post_recv(RecvWR(1, 1, [SGE(**f)])), sge),
            ("post_recv of an SRQ", lambda **f: s.srq.post_recv(RecvWR(**f)), receive),
            ("post_send of nothing", s.host.qp.post_send, {"wr": SendWR()}),
            ("modify of an SRQ", s.srq.modify, {"attr": SrqAttr(4), "comp_mask": 1}),
            ("modify", s.host.qp.modify, {"qp_attr": QPAttr(), "comp_mask": 0}),
            ("poll", s.cq.poll, {"num_entries": 1}),
            ("resize", s.cq.resize, {"cqe": 8}),
            ("ack_events", s.cq.ack_events, {"num_events": 0}),
            ("get_cq_event", lambda **f: s.channel.get_cq_event(timeout_ns=1, **f), {"expected_cq": None}),
            ("read", mr.read, {"length": 1, "offset": 0}),
            ("write", mr.write, {"data": b"x", "length": 1, "offset": 0}),
            ("rereg", mr.rereg, {"flags": ReregFlag.CHANGE_ACCESS, "pd": None, "access": mr.access}),
            ("rereg into a PD", lambda **f: mr.rereg(ReregFlag.CHANGE_PD, **f), {"pd": s.pd}),
            ("query_port", s.context.query_port, {"port_num": 1}),
            ("query_gid", s.context.query_gid, {"port_num": 1, "index": 0}),
            ("query_pkey", s.context.query_pkey, {"port_num": 1, "index": 0}),
            ("query_gid_table", s.context.query_gid_table, {"max_entries": 1}),
            ("context", lambda **f: Context(**f), {"name": "none of this name"}),
            ("GID", GID, {"val": str(GID.of_ipv4(1))}),
        ]

    def counts(self):
        """Return the number of objects of each kind."""
        context = self.context
        tables = {name: len(getattr(context, name)) for name in ("pds", "cqs", "channels", "mrs")}
        return {**tables, "qps": len(list(context.qps)), "srqs": len(self.pd.srqs), "indices": context.mr_indices.free,
                "ptes": context.pte_ranges.free_total, "keys": len(context.local_keys),
                "pages": len(context.device.memory._pages), "on the card": len(context.device.card.tables.mrs)}

    def settle(self):
        """Let accepted requests complete; return true if all of them succeeded."""
        self.pair.settle(20_000)
        return all(wc.status is WCStatus.SUCCESS for wc in self.host.cq.poll(99)[1])


def tried(call, fields):
    """Return (rejected, complaint) of a call; ``complaint`` is None, or describes an unsuitable error."""
    try:
        made = call(**fields)
    except (PyverbsError, TypeError) as error:
        message = str(error)
        return True, message if len(message) <= 10 or RAW.search(message) else None
    except Exception as error:
        return True, f"{type(error).__name__}: {error}"
    if hasattr(made, "close"):
        made.close()
    return False, None


def test_every_argument_of_every_verb():
    """A few odd values are valid (None is the default of many); most are rejected."""
    scene, refused, calls, wrong = Scene(), 0, 0, []
    for name, call, fields in scene.verbs():
        for argument in fields:
            before = scene.counts()
            for value in ODD:
                was_refused, complaint = tried(call, {**fields, argument: value})
                calls, refused = calls + 1, refused + was_refused
                wrong += [f"{name}, {argument}={value!r}: {complaint}"] * bool(complaint)
            if scene.counts() != before:
                wrong.append(f"{name}, {argument}: something leaks")
    print(f"{refused} of {calls} are refused")
    assert not wrong, "\n".join(wrong)
    assert refused > 0.8 * calls > 500
    assert scene.settle(), "a request that was taken failed"
    scene.channel.close()
    scene.pair.close()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0].name}-{step[1].name}")
def test_every_attribute_of_every_step(step):
    scene = Scene()
    qp = QP(scene.pd, rc_init_attr(scene.cq))
    good = connected_attr(scene.pair.hosts[1].qp.connection)
    for before, after in STEPS[:STEPS.index(step)]:
        qp._step(good, before, after)
    good.qp_state, mask = step[1], necessary(*step)
    named = [field.name for field in dataclasses.fields(good)]
    refused, counts = set(), scene.counts()
    for name in named:
        for value in ODD:
            attr = dataclasses.replace(good)
            setattr(attr, name, value)
            was_refused, complaint = tried(qp.modify, {"qp_attr": attr, "comp_mask": mask})
            assert complaint is None, f"{name}={value!r}: {complaint}"
            if was_refused:
                assert qp.qp_state is step[0]
                refused.add(name)
            else:     # the step ignores this attribute
                qp.reset()
                for before, after in STEPS[:STEPS.index(step)]:
                    qp._step(dataclasses.replace(good), before, after)
    assert len(refused) > 2 and "qp_state" in refused
    assert scene.counts() == counts
    scene.channel.close()
    scene.pair.close()


@pytest.mark.parametrize("field", ["dlid", "sl", "src_path_bits", "static_rate", "is_global", "port_num"])
def test_every_field_of_an_address_handle(field):
    scene = Scene()
    qp = QP(scene.pd, rc_init_attr(scene.cq))
    peer = scene.pair.hosts[1].qp.connection
    for value in ODD:
        def connect(value=value):
            attr = connected_attr(peer)
            attr.ah_attr = AHAttr(**{"is_global": 1, "gr": GlobalRoute(dgid=peer.gid), field: value})
            qp.to_rts(attr)

        refused, complaint = tried(connect, {})
        assert complaint is None, f"{field}={value!r}: {complaint}"
        assert not refused or qp.qp_state in (QPState.RESET, QPState.INIT)
        qp.reset()
    scene.channel.close()
    scene.pair.close()


@pytest.mark.parametrize(("field", "most"), [("hop_limit", 255), ("traffic_class", 255), ("flow_label", 0xF_FFFF),
                                             ("sl", 15)])
def test_fields_of_a_route_have_their_range(field, most):
    """Values that select nothing on this card are accepted and reported: UCX asks for traffic class 106."""
    scene = Scene()
    qp = QP(scene.pd, rc_init_attr(scene.cq))
    attr = connected_attr(scene.pair.hosts[1].qp.connection)
    part = attr.ah_attr if field == "sl" else attr.ah_attr.gr
    for value in (0, 1, most):
        setattr(part, field, value)
        qp.to_rts(attr)
        asked, _init = qp.query()
        assert getattr(asked.ah_attr if field == "sl" else asked.ah_attr.gr, field) == value
        qp.reset()
    for value in (-1, most + 1):
        setattr(part, field, value)
        with pytest.raises(PyverbsError, match=field):
            qp.to_rts(attr)
        qp.reset()
    scene.channel.close()
    scene.pair.close()


def test_closed_object_is_rejected_and_wakes_its_waiters():
    scene = Scene()
    scene.cq.close()
    scene.channel.close()
    for call in (scene.cq.poll, scene.cq.wait, scene.cq.req_notify, scene.channel.get_cq_event,
                 lambda: scene.cq.resize(4), lambda: MR(scene.pd, 1 << 50), lambda: scene.host.mr.read(8193, 0),
                 lambda: scene.host.mr.write(b"xx", offset=8191),
                 lambda: scene.pd.advise_mr(0, 0, []), lambda: scene.host.qp.bind_mw(None, None)):
        refused, complaint = tried(call, {})
        assert refused
        assert complaint is None, complaint
    scene.pair.close()
