"""Enumerations of what objects are created with, with the names and values of libibverbs."""

import enum


class QPInitAttrMask(enum.IntFlag):
    """Which attributes of a QPInitAttrEx count (ibv_qp_init_attr_mask)."""

    PD = 1
    XRCD = 2
    CREATE_FLAGS = 4
    MAX_TSO_HEADER = 8
    IND_TABLE = 16
    RX_HASH = 32
    SEND_OPS_FLAGS = 64


class QPCreateFlag(enum.IntFlag):
    """What is special about a QP (ibv_qp_create_flags); nothing of it exists here."""

    BLOCK_SELF_MCAST_LB = 1 << 1
    SCATTER_FCS = 1 << 8
    CVLAN_STRIPPING = 1 << 9
    SOURCE_QPN = 1 << 10
    PCI_WRITE_END_PADDING = 1 << 11


class SrqType(enum.IntEnum):
    """Kind of an SRQ (ibv_srq_type); only BASIC can be created."""

    BASIC = 0
    XRC = 1
    TM = 2


class SrqInitAttrMask(enum.IntFlag):
    """Which attributes of an SrqInitAttrEx count (ibv_srq_init_attr_mask)."""

    TYPE = 1
    PD = 2
    XRCD = 4
    CQ = 8
    TM = 16
