"""Messages between a program and the daemon: requests and their answers, over a SOCK_SEQPACKET socket.

A request is REQUEST and the body of its opcode; an answer is ANSWER and the body, or a sentence if ``status`` is an
error. Files accompany messages (SCM_RIGHTS). At most one request is outstanding on a connection.
"""

import enum

from weft.hdl.contract.layout import Field, Layout

VERSION = 5                 # since 5, receive requests ring no bell
MESSAGE_BYTES_MAX = 1 << 16
SENTENCE_BYTES_MAX = 400
FILES_MAX = 4               # with one message


class Opcode(enum.IntEnum):
    """Kind of a request."""

    HELLO = 1
    QUERY_DEVICE = 2
    ALLOC_PD = 3
    SHARE = 4
    REG_MR = 5
    REREG_MR = 6
    CREATE_CHANNEL = 7
    CREATE_CQ = 8
    RESIZE_CQ = 9
    CREATE_SRQ = 10
    MODIFY_SRQ = 11
    QUERY_SRQ = 12
    CREATE_QP = 13
    MODIFY_QP = 14
    QUERY_QP = 15
    DESTROY = 16
    CREATE_CM_CHANNEL = 17
    GET_CM_EVENT = 18
    CREATE_ID = 19
    DESTROY_ID = 20
    MIGRATE_ID = 21
    SET_OPTION = 22
    BIND_ADDR = 23
    RESOLVE_ADDR = 24
    RESOLVE_ROUTE = 25
    QUERY_ROUTE = 26
    LISTEN = 27
    CONNECT = 28
    ACCEPT = 29
    REJECT = 30
    DISCONNECT = 31
    NOTIFY = 32
    INIT_QP_ATTR = 33
    UPDATE_COUNTERS = 34
    ATTACH_MCAST = 35
    DETACH_MCAST = 36
    JOIN_MULTICAST = 37
    LEAVE_MULTICAST = 38
    MAPPER = 39


class Kind(enum.IntEnum):
    """Kind of an object that a handle names."""

    PD = 1
    MEMORY = 2
    MR = 3
    CHANNEL = 4
    CQ = 5
    SRQ = 6
    QP = 7
    CM_CHANNEL = 8
    CM_ID = 9
    MULTICAST = 10


def _layout(name, *fields):
    """Return a layout of fields, each ``("pd", 32)`` or ``("pd", 32, sentence)``."""
    fields = [Field(*field) for field in fields]
    return Layout(name, "", fields, size_bytes=sum(field.width for field in fields) // 8)


REQUEST = _layout("request", ("version", 16), ("opcode", 16, "", Opcode), ("_reserved", 32))
ANSWER = _layout("answer", ("status", 32, "0, or an error of errno."), ("_reserved", 32))
NOTHING = _layout("nothing")
HANDLE = _layout("handle", ("handle", 32), ("_reserved", 32))
KEYS = _layout("keys", ("handle", 32), ("lkey", 32), ("rkey", 32), ("_reserved", 32),
               ("dma", 64, "Address at which the program maps the region's first page for the card; 0: it does not."))
SHARED = _layout("shared", ("handle", 32), ("method", 32, "Of driver/terms/program_mapping.py."),
                 ("space", 32, "Address space of iommufd."), ("_reserved", 32))
CREATED_CQ = _layout("created_cq", ("handle", 32), ("slots", 32))

DEVICE = _layout(
    "device", ("node_guid", 64), ("max_mr_size", 64), ("page_size_cap", 64), ("version", 64, "Of the card: 8 bits each "
    "of major, minor and patch."),
    *((name, 32) for name in (
        "vendor_id", "vendor_part_id", "hw_ver", "max_qp", "max_qp_wr", "device_cap_flags", "max_sge", "max_sge_rd",
        "max_cq", "max_cqe", "max_mr", "max_pd", "max_qp_rd_atom", "max_res_rd_atom", "max_qp_init_rd_atom",
        "atomic_caps", "max_srq", "max_srq_wr", "max_srq_sge", "max_pkeys", "local_ca_ack_delay", "phys_port_cnt",
        "max_msg_sz", "max_mtu", "active_mtu", "active_width", "active_speed", "port_cap_flags", "max_ah",
        "max_mcast_grp", "max_mcast_qp_attach", "_reserved")))

WELCOME = _layout("welcome", ("node_guid", 64), ("gid", 128, "Lowest byte first."), ("index", 32),
                  ("_reserved", 32), ("name", 512, "Of the device, filled up with zeros."))
QP_CAP = tuple((name, 32) for name in (
    "max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data"))
QP_ATTR = (
    ("dgid", 128, "Lowest byte first."),
    *((name, 32) for name in (
        "qp_state", "cur_qp_state", "path_mtu", "path_mig_state", "qkey", "rq_psn", "sq_psn", "dest_qp_num",
        "qp_access_flags", "flow_label")),
    *((name, 8) for name in (
        "pkey_index", "en_sqd_async_notify", "sq_draining", "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer",
        "port_num", "timeout", "retry_cnt", "rnr_retry", "is_global", "sgid_index", "hop_limit", "traffic_class", "sl",
        "ah_port_num")))
SRQ_ATTR = (("max_wr", 32), ("max_sge", 32), ("srq_limit", 32))
CM_PRIVATE_BYTES_MAX = 256
_PRIVATE = ("private_data", CM_PRIVATE_BYTES_MAX * 8, "Lowest byte first.")
CONN_PARAM = (("qp_num", 32), ("qkey", 32, "Of datagrams."), *((name, 8) for name in (
    "private_data_len", "srq", "responder_resources", "initiator_depth", "flow_control", "retry_count",
    "rnr_retry_count", "_padding")), _PRIVATE)
ADDRESSES = tuple((name, 32) for name in ("src_ip", "src_port", "dst_ip", "dst_port"))
_ID = ("handle", 32)
_PLACE = (("address", 64, "Of the region's first byte in the program's memory."),
          ("iova", 64, "Of the region's first byte in work requests."), ("length", 64),
          ("memory", 32, "Handle of SHARE."), ("_reserved", 32))

# Request and answer of each opcode. Comments name files that accompany a message.
MESSAGES = {
    Opcode.HELLO: (NOTHING, WELCOME),       # files: bell, the daemon's doorbell, the program's, asynchronous events
    Opcode.QUERY_DEVICE: (NOTHING, DEVICE),
    Opcode.ALLOC_PD: (NOTHING, HANDLE),
    Opcode.SHARE: (NOTHING, SHARED),                                 # file: /proc/self/mem of the program
    Opcode.MAPPER: (NOTHING, NOTHING),                               # file: VFIO container, or /dev/iommu
    Opcode.REG_MR: (_layout("reg_mr", ("pd", 32), ("access", 32), *_PLACE), KEYS),
    Opcode.REREG_MR: (_layout("rereg_mr", ("handle", 32), ("flags", 32), ("pd", 32), ("access", 32), *_PLACE), KEYS),
    Opcode.CREATE_CHANNEL: (NOTHING, HANDLE),                        # file: COMP_EVENTs
    Opcode.CREATE_CQ: (_layout("create_cq", ("user", 64), ("cqe", 32), ("channel", 32, "0 for none."),
                               ("comp_vector", 32), ("_reserved", 32)), CREATED_CQ),      # file: ring of WC_SLOTs
    Opcode.RESIZE_CQ: (_layout("resize_cq", ("handle", 32), ("cqe", 32)), CREATED_CQ),      # file: the new ring
    Opcode.CREATE_SRQ: (_layout("create_srq", ("user", 64), ("pd", 32), ("max_wr", 32), ("max_sge", 32),
                                ("_reserved", 32)),                  # file: ring of RECV_SLOTs
                        _layout("created_srq", ("handle", 32), ("number", 32), ("slots", 32), ("slot_bytes", 32))),
    Opcode.MODIFY_SRQ: (_layout("modify_srq", ("handle", 32), ("mask", 32), ("max_wr", 32), ("srq_limit", 32)),
                        _layout("modified_srq", ("slots", 32), ("slot_bytes", 32))),     # file: the new ring, of MAX_WR
    Opcode.QUERY_SRQ: (HANDLE, _layout("srq_attr", *SRQ_ATTR, ("_reserved", 32))),
    Opcode.CREATE_QP: (_layout("create_qp", ("user", 64), ("pd", 32), ("send_cq", 32), ("recv_cq", 32), ("srq", 32),
                               ("qp_type", 32), ("sq_sig_all", 32), *QP_CAP, ("_reserved", 32)),
                       _layout("created_qp", ("handle", 32), ("qp_num", 32), ("send_slots", 32),
                               ("send_slot_bytes", 32), ("recv_slots", 32), ("recv_slot_bytes", 32), *QP_CAP,
                               ("_reserved", 32))),                  # files: ring of SEND_SLOTs, ring of RECV_SLOTs
    Opcode.MODIFY_QP: (_layout("modify_qp", ("handle", 32), ("mask", 32), *QP_ATTR),
                       _layout("state", ("qp_state", 32), ("_reserved", 32))),
    Opcode.QUERY_QP: (HANDLE, _layout("qp_attr", *QP_ATTR)),
    Opcode.UPDATE_COUNTERS: (NOTHING, NOTHING),                     # in the host's folder NAME.sys
    **dict.fromkeys((Opcode.ATTACH_MCAST, Opcode.DETACH_MCAST), (_layout(
        "mcast", ("handle", 32, "Of the QP."), ("_reserved", 32), ("gid", 128, "Lowest byte first.")), NOTHING)),
    Opcode.DESTROY: (_layout("destroy", ("kind", 32, "", Kind), ("handle", 32)), NOTHING),
    # Requests of librdmacm to the kernel (rdma/rdma_user_cm.h). IP addresses are numbers; 0 is any.
    Opcode.CREATE_CM_CHANNEL: (NOTHING, HANDLE),                     # file: a byte for each event
    Opcode.GET_CM_EVENT: (HANDLE, _layout(
        "cm_event", ("user", 64), ("there", 32, "0: there is none."), ("id", 32), ("event", 32), ("status", 32),
        *CONN_PARAM, ("ud", 32, "1: of a UD queue pair."), ("peer_ip", 32, "Of that queue pair, or the group."))),
    Opcode.CREATE_ID: (_layout("create_id", ("user", 64), ("channel", 32), ("port_space", 32), ("qp_type", 32),
                               ("_reserved", 32)), HANDLE),
    Opcode.DESTROY_ID: (HANDLE, _layout("events", ("reported", 32), ("dropped", 32, "That were not taken."))),
    Opcode.MIGRATE_ID: (_layout("migrate_id", _ID, ("channel", 32)),
                        _layout("moved", ("reported", 32), ("moved", 32, "From one channel to the other."))),
    Opcode.SET_OPTION: (_layout("set_option", _ID, ("level", 32), ("name", 32), ("value", 32)), NOTHING),
    Opcode.BIND_ADDR: (_layout("bind_addr", _ID, ("ip", 32), ("port", 32), ("ipv6", 32, "1: any address of IPv6.")),
                       NOTHING),
    Opcode.RESOLVE_ADDR: (_layout("resolve_addr", _ID, ("timeout_ms", 32), *ADDRESSES), NOTHING),
    Opcode.RESOLVE_ROUTE: (HANDLE, NOTHING),
    Opcode.QUERY_ROUTE: (HANDLE, _layout(
        "id_route", ("node_guid", 64, "0 as long as it belongs to no device."), ("sgid", 128, "Lowest byte first."),
        ("dgid", 128, "Likewise."), *ADDRESSES, ("paths", 32), ("mtu", 32))),
    Opcode.LISTEN: (_layout("listen", _ID, ("backlog", 32)), NOTHING),
    Opcode.CONNECT: (_layout("connect", _ID, *CONN_PARAM), NOTHING),
    Opcode.ACCEPT: (_layout("accept", ("user", 64), _ID, ("valid", 32, "0: no parameters."), *CONN_PARAM), NOTHING),
    Opcode.REJECT: (_layout("reject", _ID, ("reason", 32), ("private_data_len", 32), _PRIVATE), NOTHING),
    Opcode.DISCONNECT: (HANDLE, NOTHING),
    Opcode.NOTIFY: (_layout("notify", _ID, ("event", 32)), NOTHING),
    Opcode.INIT_QP_ATTR: (_layout("init_qp_attr", _ID, ("qp_state", 32)),
                          _layout("id_qp_attr", ("mask", 32), *QP_ATTR, ("_reserved", 32))),
    Opcode.JOIN_MULTICAST: (_layout("join_multicast", ("user", 64), _ID, ("ip", 32)), HANDLE),
    Opcode.LEAVE_MULTICAST: (HANDLE, _layout("left", ("reported", 32), ("dropped", 32, "Events that were not taken."))),
}


def layouts():
    """Return all layouts by name, including those of requests and answers."""
    pairs = (layout for pair in MESSAGES.values() for layout in pair)
    return {layout.name: layout for layout in (REQUEST, ANSWER, *pairs) if layout is not NOTHING}
