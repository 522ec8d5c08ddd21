"""Calls of a program: a function for each opcode.

Each function maps ``(client, request, tail, files)`` to the fields of the answer and the files to hand over.
"""

import errno
import os
from ipaddress import IPv6Address

from ..ibverbs.messages import QP_CAP, Kind, Opcode
from ..ibverbs.rings import Limit
from ..terms.enums import QPAttrMask, QPType, ReregFlag, SrqAttrMask
from ..terms.errors import InUse, InvalidValue, PyverbsRDMAError
from ..terms.program_mapping import MappingMethod
from ..verbs.addr import GID, AHAttr, GlobalRoute
from ..verbs.device_list import guid_of
from ..verbs.pd import PD
from ..verbs.qp import QPAttr, QPCap, QPInitAttr
from ..verbs.srq import SrqAttr, SrqInitAttr
from .client import EventPipe
from .completion_queue import CQE_LEAST
from .process import owner_of
from .program_memory import Place, ProgramMemory
from .quota import ResourceKind
from .ring import Violation

NAME = b"weft0"      # name of the only device of a host
ANY = 1 << 64


# ------------------------------------------------------------------------------------------------------- device

def field_of(gid):
    """Return a GID, or its text, in the form of messages."""
    return int.from_bytes(IPv6Address(str(gid)).packed, "little")


def hello(client, _request, _tail, _files):
    if client.context is not None:
        raise Violation("a second greeting")
    card = client.open().card
    return ({"node_guid": guid_of(card.mac), "gid": field_of(GID.of_ipv4(card.ip)), "index": 0,
             "name": int.from_bytes(NAME, "little")},
            [client.bell_file.release(), os.dup(client.doorbell), client.wake.release(),
             client.async_events.theirs.release()])


def query_device(client, _request, _tail, _files):
    device, port = client.open().query_device(), client.context.query_port(1)
    major, minor, patch = client.context.capabilities.version
    same = ("node_guid", "max_mr_size", "page_size_cap", "vendor_id", "vendor_part_id", "hw_ver", "max_qp", "max_qp_wr",
            "device_cap_flags", "max_sge", "max_sge_rd", "max_cq", "max_cqe", "max_mr", "max_pd", "max_qp_rd_atom",
            "max_res_rd_atom", "max_qp_init_rd_atom", "atomic_caps", "max_srq", "max_srq_wr", "max_srq_sge",
            "max_pkeys", "local_ca_ack_delay", "phys_port_cnt", "max_ah", "max_mcast_grp", "max_mcast_qp_attach")
    of_port = ("max_msg_sz", "max_mtu", "active_mtu", "active_width", "active_speed", "port_cap_flags")
    most = client.account.most
    at_most = {"max_mr_size": most[ResourceKind.MEMORY],
               **dict.fromkeys(("max_cq", "max_pd", "max_srq"), most[ResourceKind.OBJECTS])}
    return ({name: min(int(getattr(device, name)), at_most.get(name, ANY)) for name in same}
            | {name: int(getattr(port, name)) for name in of_port}
            | {"version": major << 16 | minor << 8 | patch}), []


def update_counters(client, _request, _tail, _files):
    client.sysfs.update()
    return {}, []


# ---------------------------------------------------------------------------------------------------- memory

def alloc_pd(client, _request, _tail, _files):
    return {"handle": client.add(Kind.PD, PD(client.open()))}, []


def share(client, _request, _tail, files):
    if len(files) != 1:
        raise Violation(f"{len(files)} files where one is shared")
    mapping = _mapping_for(client)
    amounts = {ResourceKind.DESCRIPTORS: 1}
    client.account.check(amounts)
    memory = ProgramMemory(files[0], client.memory_ended, client.account, owner_of(files[0], client.socket),
                           client=client, accesses=client.accesses)
    return {"handle": client.add(Kind.MEMORY, memory, amounts), "method": mapping.method, "space": mapping.space}, []


def _mapping_for(client):
    """Return how the program maps memory for the card.

    Raises
    ------
    PyverbsRDMAError
        EACCES if the card is hardware, and the daemon does not trust the program's user.
    """
    mapping = client.open().device.for_programs
    if mapping.method is not MappingMethod.BACK_END and not client.trusted:
        raise PyverbsRDMAError("programs map their memory for the card themselves, and those of this user may not: "
                               "start weft serve as this user, or with --users", errno.EACCES)
    return mapping


def mapper(client, _request, _tail, _files):
    mapping = _mapping_for(client)
    if mapping.file < 0:
        raise Violation("the card has no mapper")
    return {}, [os.dup(mapping.file)]


def _place(client, request):
    return Place(client.find(Kind.MEMORY, request.memory), request.address, request.length, request.iova)


def _keys(handle, mr):
    return {"handle": handle, "lkey": mr.lkey, "rkey": mr.rkey, "dma": getattr(mr.buffer, "dma", 0)}


def reg_mr(client, request, _tail, _files):
    place = _place(client, request)
    mr = client.types.mr(client.find(Kind.PD, request.pd), request.length, request.access, request.iova, buffer=place)
    if not mr.installed:
        client.new_regions.append(mr)
    return _keys(client.add(Kind.MR, mr), mr), []


def rereg_mr(client, request, _tail, _files):
    mr, flags = client.find(Kind.MR, request.handle), ReregFlag(request.flags)
    pd = client.find(Kind.PD, request.pd) if flags & ReregFlag.CHANGE_PD else None
    place = _place(client, request) if flags & ReregFlag.CHANGE_TRANSLATION else None
    mr.rereg(flags, pd, request.iova, request.length, request.access, buffer=place)
    client.new_regions.append(mr)
    return _keys(request.handle, mr), []


# -------------------------------------------------------------------------------------------------- completions

def create_channel(client, _request, _tail, _files):
    amounts = {ResourceKind.DESCRIPTORS: 1}
    client.account.check(amounts)
    channel = EventPipe(client)
    return {"handle": client.add(Kind.CHANNEL, channel, amounts)}, [channel.theirs.release()]


def _slots(asked, subject):
    if not 0 <= asked <= 1 << Limit.SLOTS_LOG2:
        raise InvalidValue(f"{subject} is {asked}; {1 << Limit.SLOTS_LOG2} at most are possible")
    return asked


def create_cq(client, request, _tail, _files):
    channel = client.find(Kind.CHANNEL, request.channel) if request.channel else None
    cq = client.types.cq(client.open(), _slots(request.cqe, "cqe"), client=client, user=request.user, channel=channel,
                  comp_vector=request.comp_vector)
    return {"handle": client.add(Kind.CQ, cq, cq.ring.amounts), "slots": cq.ring.slots}, [cq.ring.file.release()]


def resize_cq(client, request, _tail, _files):
    cq = client.find(Kind.CQ, request.handle)
    client.take_work()      # completions of what was posted before this call are in the queue
    client.context.progress()
    cq.resize(_slots(request.cqe, "cqe"), lambda ring: client.recharge(Kind.CQ, request.handle, ring.amounts))
    return {"handle": request.handle, "slots": cq.ring.slots}, [cq.ring.file.release()]


# ------------------------------------------------------------------------------------------------------- queues

def _of_requests(*rings):
    """Return the cost of rings of work requests."""
    return {ResourceKind.RINGS: sum(ring.amounts[ResourceKind.RINGS] for ring in rings),
            ResourceKind.MAPPINGS: len(rings),
            ResourceKind.REQUESTS: sum(ring.slots for ring in rings)}


def create_srq(client, request, _tail, _files):
    attr = SrqAttr(_slots(request.max_wr, "max_wr"), request.max_sge)
    srq = client.types.srq(client.find(Kind.PD, request.pd), SrqInitAttr(attr), user=request.user)
    handle = client.add(Kind.SRQ, srq, _of_requests(srq.ring))
    return {"handle": handle, "number": srq.get_srq_num(), "slots": srq.ring.slots,
            "slot_bytes": srq.ring.slot_bytes}, [srq.ring.file.release()]


def modify_srq(client, request, _tail, _files):
    srq = client.find(Kind.SRQ, request.handle)
    srq.take_work()      # work that was posted before this call
    resized = bool(request.mask & SrqAttrMask.MAX_WR)
    attr = SrqAttr(max_wr=_slots(request.max_wr, "max_wr") if resized else 0, srq_limit=request.srq_limit)
    srq.modify(attr, request.mask, lambda ring: client.recharge(Kind.SRQ, request.handle, _of_requests(ring)))
    return {"slots": srq.ring.slots, "slot_bytes": srq.ring.slot_bytes}, [srq.ring.file.release()] if resized else []


def query_srq(client, request, _tail, _files):
    attr = client.find(Kind.SRQ, request.handle).query()
    return {"max_wr": attr.max_wr, "max_sge": attr.max_sge, "srq_limit": attr.srq_limit}, []


_CAPS = [name for name, _ in QP_CAP]


def create_qp(client, request, _tail, _files):
    srq = client.find(Kind.SRQ, request.srq) if request.srq else None
    caps = {name: getattr(request, name) for name in _CAPS}
    for name in ("max_send_wr",) if srq else ("max_send_wr", "max_recv_wr"):
        _slots(caps[name], name)
    if request.qp_type == QPType.UD:      # programs expect more than they asked for: no real device has a shorter queue
        caps["max_send_wr"] = max(caps["max_send_wr"], CQE_LEAST)
    init = QPInitAttr(request.qp_type, None, client.find(Kind.CQ, request.send_cq),
                      client.find(Kind.CQ, request.recv_cq), srq, QPCap(**caps), request.sq_sig_all)
    qp = client.types.qp(client.find(Kind.PD, request.pd), init, user=request.user)
    handle = client.add(Kind.QP, qp, _of_requests(qp.sends, qp.receives))
    client.qps[qp.qp_num] = qp
    return ({"handle": handle, "qp_num": qp.qp_num, "send_slots": qp.sends.slots,
             "send_slot_bytes": qp.sends.slot_bytes, "recv_slots": qp.receives.slots,
             "recv_slot_bytes": qp.receives.slot_bytes} | {name: getattr(qp.cap, name) for name in _CAPS},
            [qp.sends.file.release(), qp.receives.file.release()])


_PLAIN = ("cur_qp_state", "path_mtu", "path_mig_state", "qkey", "rq_psn", "sq_psn", "dest_qp_num", "qp_access_flags",
          "pkey_index", "en_sqd_async_notify", "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer", "port_num",
          "timeout", "retry_cnt", "rnr_retry")


def modify_qp(client, request, _tail, _files):
    qp = client.find(Kind.QP, request.handle)
    qp.take_work()      # work that was posted before this call
    attr = QPAttr(**{name: getattr(request, name) for name in _PLAIN})
    attr.qp_state = request.qp_state
    if request.mask & QPAttrMask.AV:
        dgid = IPv6Address(request.dgid.to_bytes(16, "little")).exploded
        attr.ah_attr = AHAttr(is_global=request.is_global, sl=request.sl, port_num=request.ah_port_num,
                              gr=GlobalRoute(dgid, request.flow_label, request.sgid_index, request.hop_limit,
                                             request.traffic_class))
    qp.modify(attr, request.mask)
    return {"qp_state": qp.qp_state}, []


def query_qp(client, request, _tail, _files):
    attr, _init = client.find(Kind.QP, request.handle).query()
    return qp_attr_fields(attr), []


def qp_attr_fields(attr):
    """Return a :class:`QPAttr` in the form of messages."""
    route = attr.ah_attr.gr
    return {name: int(getattr(attr, name)) for name in _PLAIN} | {
        "qp_state": int(attr.qp_state), "sq_draining": attr.sq_draining, "is_global": attr.ah_attr.is_global,
        "dgid": field_of(route.dgid), "flow_label": route.flow_label,
        "sgid_index": route.sgid_index, "hop_limit": route.hop_limit, "traffic_class": route.traffic_class,
        "sl": attr.ah_attr.sl, "ah_port_num": attr.ah_attr.port_num}


def _group_of(request):
    return IPv6Address(request.gid.to_bytes(16, "little")).exploded


def attach_mcast(client, request, _tail, _files):
    client.find(Kind.QP, request.handle).attach_mcast(_group_of(request))
    return {}, []


def detach_mcast(client, request, _tail, _files):
    client.find(Kind.QP, request.handle).detach_mcast(_group_of(request))
    return {}, []


# -------------------------------------------------------------------------------------------------- destruction

def _users(kind, thing):
    """Return the number of objects that use this one."""
    if kind is Kind.PD:
        return len(thing.qps) + len(thing.srqs) + len(thing.mrs)
    if kind in (Kind.CQ, Kind.SRQ):
        return len(thing.qps)
    return thing.users if kind in (Kind.CHANNEL, Kind.MEMORY) else 0


_KINDS = {kind.value: kind for kind in Kind}


def destroy(client, request, _tail, _files):
    kind = _KINDS.get(request.kind)
    if kind is None:
        raise Violation(f"kind {request.kind}")
    thing = client.find(kind, request.handle)
    if users := _users(kind, thing):
        raise InUse(f"{users} others need the {kind.name}")
    if kind is Kind.QP:
        thing.send_posted()
    thing.close()
    client.remove(kind, request.handle)
    if kind is Kind.QP:
        client.qps.pop(thing.qp_num, None)
    return {}, []


CALLS = {
    Opcode.HELLO: hello, Opcode.QUERY_DEVICE: query_device, Opcode.UPDATE_COUNTERS: update_counters,
    Opcode.ALLOC_PD: alloc_pd, Opcode.SHARE: share, Opcode.MAPPER: mapper,
    Opcode.REG_MR: reg_mr, Opcode.REREG_MR: rereg_mr, Opcode.CREATE_CHANNEL: create_channel,
    Opcode.CREATE_CQ: create_cq, Opcode.RESIZE_CQ: resize_cq, Opcode.CREATE_SRQ: create_srq,
    Opcode.MODIFY_SRQ: modify_srq, Opcode.QUERY_SRQ: query_srq, Opcode.CREATE_QP: create_qp,
    Opcode.MODIFY_QP: modify_qp, Opcode.QUERY_QP: query_qp, Opcode.ATTACH_MCAST: attach_mcast,
    Opcode.DETACH_MCAST: detach_mcast, Opcode.DESTROY: destroy,
}
