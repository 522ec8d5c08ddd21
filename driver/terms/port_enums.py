"""Enumerations that describe devices and their ports, with the names and values of libibverbs."""

import enum


class NodeType(enum.IntEnum):
    """Kind of a device (ibv_node_type)."""

    UNKNOWN = -1
    CA = 1
    SWITCH = 2
    ROUTER = 3
    RNIC = 4
    USNIC = 5
    USNIC_UDP = 6
    UNSPECIFIED = 7


class TransportType(enum.IntEnum):
    """Transport protocol of a device (ibv_transport_type)."""

    UNKNOWN = -1
    IB = 0
    IWARP = 1
    USNIC = 2
    USNIC_UDP = 3
    UNSPECIFIED = 4


class PortState(enum.IntEnum):
    """State of a port (ibv_port_state)."""

    NOP = 0
    DOWN = 1
    INIT = 2
    ARMED = 3
    ACTIVE = 4
    ACTIVE_DEFER = 5


class LinkLayer(enum.IntEnum):
    """Link layer of a port."""

    UNSPECIFIED = 0
    INFINIBAND = 1
    ETHERNET = 2


class AtomicCap(enum.IntEnum):
    """Scope of atomicity of atomic operations (ibv_atomic_cap)."""

    NONE = 0
    HCA = 1
    GLOB = 2


class GidType(enum.IntEnum):
    """Kind of a GID (ibv_gid_type)."""

    IB = 0
    ROCE_V1 = 1
    ROCE_V2 = 2


class GidTypeSysfs(enum.IntEnum):
    """Kind of a GID as ``query_gid_type`` returns it (ibv_gid_type_sysfs)."""

    IB_ROCE_V1 = 0
    ROCE_V2 = 1


class DeviceCapFlag(enum.IntFlag):
    """Optional capabilities of a device (ibv_device_cap_flags)."""

    RESIZE_MAX_WR = 1 << 0
    BAD_PKEY_CNTR = 1 << 1
    BAD_QKEY_CNTR = 1 << 2
    RAW_MULTI = 1 << 3
    AUTO_PATH_MIG = 1 << 4
    CHANGE_PHY_PORT = 1 << 5
    UD_AV_PORT_ENFORCE = 1 << 6
    CURR_QP_STATE_MOD = 1 << 7
    SHUTDOWN_PORT = 1 << 8
    INIT_TYPE = 1 << 9
    PORT_ACTIVE_EVENT = 1 << 10
    SYS_IMAGE_GUID = 1 << 11
    RC_RNR_NAK_GEN = 1 << 12
    SRQ_RESIZE = 1 << 13
    N_NOTIFY_CQ = 1 << 14
    MEM_WINDOW = 1 << 17
    UD_IP_CSUM = 1 << 18
    XRC = 1 << 20
    MEM_MGT_EXTENSIONS = 1 << 21
