"""Public names of the driver: objects of the verbs and of RDMA CM, enumerations, errors, and the list of devices.

``from weft.driver import NAME`` gets each of them.
"""

from .cm.addr_info import AddrInfo
from .cm.cmid import CMID, ConnectionFailed
from .cm.conn_param import ConnParam
from .cm.enums import AddrFlag, PortSpace
from .pci.device import open_device
from .terms.enums import MTU, AccessFlag, QPState, QPType, SendFlags, WCFlags, WCOpcode, WCStatus, WROpcode
from .terms.errors import PyverbsError, PyverbsRDMAError, PyverbsUserError
from .terms.wc import WC
from .verbs.addr import AH, GID, AHAttr, GlobalRoute
from .verbs.config import ContextConfig
from .verbs.context import Context
from .verbs.cq import CQ, CompChannel
from .verbs.device_list import add_device, get_device_list, remove_device
from .verbs.mr import MR
from .verbs.pd import PD
from .verbs.qp import QP
from .verbs.qp_attr import QPAttr, QPConnection
from .verbs.qp_init_attr import QPCap, QPInitAttr, rc_init_attr
from .verbs.srq import SRQ, SrqAttr, SrqInitAttr
from .verbs.wr import SGE, RecvWR, SendWR

__all__ = [
    "AH", "AHAttr", "AccessFlag", "AddrFlag", "AddrInfo", "CMID", "CQ", "CompChannel", "ConnParam", "ConnectionFailed",
    "Context", "ContextConfig", "GID", "GlobalRoute", "MR", "MTU", "PD", "PortSpace", "PyverbsError",
    "PyverbsRDMAError", "PyverbsUserError", "QP", "QPAttr", "QPCap", "QPConnection", "QPInitAttr", "QPState", "QPType",
    "RecvWR", "SGE", "SRQ", "SendFlags", "SendWR", "SrqAttr", "SrqInitAttr", "WC", "WCFlags", "WCOpcode", "WCStatus",
    "WROpcode", "add_device", "get_device_list", "open_device", "rc_init_attr", "remove_device"]
