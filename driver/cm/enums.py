"""Enumerations of RDMA CM, with the values of librdmacm, and by their names in ``pyverbs.cm_enums``."""

import enum
from typing import TYPE_CHECKING, Any


class EventType(enum.IntEnum):
    """Kind of an event (rdma_cm_event_type)."""

    ADDR_RESOLVED = 0
    ADDR_ERROR = 1
    ROUTE_RESOLVED = 2
    ROUTE_ERROR = 3
    CONNECT_REQUEST = 4
    CONNECT_RESPONSE = 5
    CONNECT_ERROR = 6
    UNREACHABLE = 7
    REJECTED = 8
    ESTABLISHED = 9
    DISCONNECTED = 10
    DEVICE_REMOVAL = 11
    MULTICAST_JOIN = 12
    MULTICAST_ERROR = 13
    ADDR_CHANGE = 14
    TIMEWAIT_EXIT = 15


class PortSpace(enum.IntEnum):
    """Port space (rdma_port_space); TCP, of reliable connections, and UDP, of datagrams, are supported."""

    IPOIB = 0x0002
    TCP = 0x0106
    UDP = 0x0111
    IB = 0x013F


class AddrFlag(enum.IntFlag):
    """Hints for an AddrInfo (RAI_*)."""

    PASSIVE = 1
    NUMERICHOST = 2
    NOROUTE = 4
    FAMILY = 8


class Option(enum.IntEnum):
    """Options of a CMID (RDMA_OPTION_ID_*)."""

    TOS = 0
    REUSEADDR = 1
    AFONLY = 2
    ACK_TIMEOUT = 3


class McJoinFlag(enum.IntEnum):
    """Kind of a membership in a multicast group (RDMA_MC_JOIN_FLAG_*); only full members exist."""

    FULLMEMBER = 0
    SENDONLY_FULLMEMBER = 1


class McAttrMask(enum.IntFlag):
    """Valid attributes of a JoinMCAttrEx (rdma_cm_join_mc_attr_mask)."""

    ADDRESS = 1
    JOIN_FLAGS = 2


RDMA_OPTION_ID = 0      # the level of those options
UDP_QKEY = 0x0123_4567  # RDMA_UDP_QKEY: that of all UD queue pairs of RDMA CM
for _kind, _prefix in ((EventType, "RDMA_CM_EVENT_"), (PortSpace, "RDMA_PS_"), (AddrFlag, "RAI_"),
                       (Option, "RDMA_OPTION_ID_"), (McJoinFlag, "RDMA_MC_JOIN_FLAG_"),
                       (McAttrMask, "RDMA_CM_JOIN_MC_ATTR_")):
    globals().update({f"{_prefix}{member.name}": member for member in _kind})
if TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """Declare the names above for static tools."""
