"""Enumerations and members by their names in libibverbs, as in ``pyverbs.enums``: ``IBV_QPS_INIT`` and so on."""

import enum
from typing import TYPE_CHECKING, Any

from ..terms import enums, init_enums, port_enums

# Name of the enumeration in libibverbs, class in this package, prefix of the names of the members.
NAMES: tuple[tuple[str, type[enum.IntEnum] | type[enum.IntFlag], str], ...] = (
    ("ibv_qp_type", enums.QPType, "IBV_QPT_"),
    ("ibv_qp_state", enums.QPState, "IBV_QPS_"),
    ("ibv_mig_state", enums.MigState, "IBV_MIG_"),
    ("ibv_event_type", enums.EventType, "IBV_EVENT_"),
    ("ibv_wr_opcode", enums.WROpcode, "IBV_WR_"),
    ("ibv_wc_opcode", enums.WCOpcode, "IBV_WC_"),
    ("ibv_wc_status", enums.WCStatus, "IBV_WC_"),
    ("ibv_wc_flags", enums.WCFlags, "IBV_WC_"),
    ("ibv_send_flags", enums.SendFlags, "IBV_SEND_"),
    ("ibv_access_flags", enums.AccessFlag, "IBV_ACCESS_"),
    ("ibv_rereg_mr_flags", enums.ReregFlag, "IBV_REREG_MR_"),
    ("ibv_mtu", enums.MTU, "IBV_"),
    ("ibv_qp_attr_mask", enums.QPAttrMask, "IBV_QP_"),
    ("ibv_srq_attr_mask", enums.SrqAttrMask, "IBV_SRQ_"),
    ("ibv_qp_init_attr_mask", init_enums.QPInitAttrMask, "IBV_QP_INIT_ATTR_"),
    ("ibv_qp_create_flags", init_enums.QPCreateFlag, "IBV_QP_CREATE_"),
    ("ibv_srq_type", init_enums.SrqType, "IBV_SRQT_"),
    ("ibv_srq_init_attr_mask", init_enums.SrqInitAttrMask, "IBV_SRQ_INIT_ATTR_"),
    ("ibv_create_cq_wc_flags", init_enums.CqWcFlag, "IBV_WC_"),
    ("ibv_create_cq_attr_flags", init_enums.CqAttrFlag, "IBV_CREATE_CQ_ATTR_"),
    ("ibv_cq_init_attr_mask", init_enums.CqInitAttrMask, "IBV_CQ_INIT_ATTR_MASK_"),
    ("ibv_fork_status", init_enums.ForkStatus, "IBV_FORK_"),
    ("ibv_node_type", port_enums.NodeType, "IBV_NODE_"),
    ("ibv_transport_type", port_enums.TransportType, "IBV_TRANSPORT_"),
    ("ibv_port_state", port_enums.PortState, "IBV_PORT_"),
    ("ibv_link_layer", port_enums.LinkLayer, "IBV_LINK_LAYER_"),
    ("ibv_atomic_cap", port_enums.AtomicCap, "IBV_ATOMIC_"),
    ("ibv_gid_type", port_enums.GidType, "IBV_GID_TYPE_"),
    ("ibv_gid_type_sysfs", port_enums.GidTypeSysfs, "IBV_GID_TYPE_SYSFS_"),
    ("ibv_device_cap_flags", port_enums.DeviceCapFlag, "IBV_DEVICE_"),
)
__all__ = ["NAMES"]
for _name, _kind, _prefix in NAMES:
    for _key, _value in ((_name, _kind), *((_prefix + m, _kind[m]) for m in _kind.__members__)):
        globals()[_key] = _value
        __all__.append(_key)
if TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """Declare the names above for static tools."""
