"""Enumerations for the creation of objects, with the names and values of libibverbs."""

import enum


class QPInitAttrMask(enum.IntFlag):
    """Valid attributes of a QPInitAttrEx (ibv_qp_init_attr_mask)."""

    PD = 1
    XRCD = 2
    CREATE_FLAGS = 4
    MAX_TSO_HEADER = 8
    IND_TABLE = 16
    RX_HASH = 32
    SEND_OPS_FLAGS = 64


class QPCreateFlag(enum.IntFlag):
    """Creation flags of a QP (ibv_qp_create_flags); none is supported."""

    BLOCK_SELF_MCAST_LB = 1 << 1
    SCATTER_FCS = 1 << 8
    CVLAN_STRIPPING = 1 << 9
    SOURCE_QPN = 1 << 10
    PCI_WRITE_END_PADDING = 1 << 11


class SrqType(enum.IntEnum):
    """Type of an SRQ (ibv_srq_type). Only BASIC is supported."""

    BASIC = 0
    XRC = 1
    TM = 2


class SrqInitAttrMask(enum.IntFlag):
    """Valid attributes of an SrqInitAttrEx (ibv_srq_init_attr_mask)."""

    TYPE = 1
    PD = 2
    XRCD = 4
    CQ = 8
    TM = 16


class CqWcFlag(enum.IntFlag):
    """Readable fields of a completion of a CQEX (ibv_create_cq_wc_flags)."""

    EX_WITH_BYTE_LEN = 1 << 0
    EX_WITH_IMM = 1 << 1
    EX_WITH_QP_NUM = 1 << 2
    EX_WITH_SRC_QP = 1 << 3
    EX_WITH_SLID = 1 << 4
    EX_WITH_SL = 1 << 5
    EX_WITH_DLID_PATH_BITS = 1 << 6
    STANDARD_FLAGS = 0x7F
    EX_WITH_COMPLETION_TIMESTAMP = 1 << 7
    EX_WITH_CVLAN = 1 << 8
    EX_WITH_FLOW_TAG = 1 << 9
    EX_WITH_TM_INFO = 1 << 10
    EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11


class CqAttrFlag(enum.IntFlag):
    """Creation flags of a CQEX (ibv_create_cq_attr_flags)."""

    SINGLE_THREADED = 1
    IGNORE_OVERRUN = 2


class CqInitAttrMask(enum.IntFlag):
    """Valid attributes of a CqInitAttrEx (ibv_cq_init_attr_mask)."""

    FLAGS = 1
    PD = 2


class ForkStatus(enum.IntEnum):
    """Support of fork in a process with registered memory (ibv_fork_status)."""

    DISABLED = 0
    ENABLED = 1
    UNNEEDED = 2
