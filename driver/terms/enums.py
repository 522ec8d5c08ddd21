"""Verbs enumerations, with the names and values of libibverbs."""

import enum


class QPType(enum.IntEnum):
    """Type of a QP; only RC exists."""

    RC = 2


class QPState(enum.IntEnum):
    """State of a QP (ibv_qp_state)."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class EventType(enum.IntEnum):
    """Kind of an asynchronous event (ibv_event_type)."""

    CQ_ERR = 0
    DEVICE_FATAL = 8


class WROpcode(enum.IntEnum):
    """Operation of a send work request (ibv_wr_opcode)."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6


class WCOpcode(enum.IntEnum):
    """Operation a completion speaks of (ibv_wc_opcode)."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WCStatus(enum.IntEnum):
    """Status of a completion (ibv_wc_status)."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    BAD_RESP_ERR = 7
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    FATAL_ERR = 19
    GENERAL_ERR = 21


class SendFlags(enum.IntFlag):
    """Flags of a send work request (ibv_send_flags)."""

    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8


class WCFlags(enum.IntFlag):
    """Flags of a completion (ibv_wc_flags)."""

    WITH_IMM = 2


class AccessFlag(enum.IntFlag):
    """Access of an MR or a QP (ibv_access_flags); the card knows the low four."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    HUGETLB = 128


class MTU(enum.IntEnum):
    """Path MTU (ibv_mtu)."""

    MTU_256 = 1
    MTU_512 = 2
    MTU_1024 = 3
    MTU_2048 = 4
    MTU_4096 = 5


class QPAttrMask(enum.IntFlag):
    """Which attributes ``QP.modify`` applies (ibv_qp_attr_mask)."""

    STATE = 1
    ACCESS_FLAGS = 8
    PATH_MTU = 256
    TIMEOUT = 512
    RETRY_CNT = 1024
    RNR_RETRY = 2048
    RQ_PSN = 4096
    MIN_RNR_TIMER = 32768
    SQ_PSN = 65536
    DEST_QPN = 1048576
