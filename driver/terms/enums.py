"""Verbs enumerations, with the names and values of libibverbs."""

import enum


class QPType(enum.IntEnum):
    """Type of a QP (ibv_qp_type). RC and UD are supported."""

    RC = 2
    UC = 3
    UD = 4
    RAW_PACKET = 8
    XRC_SEND = 9
    XRC_RECV = 10
    DRIVER = 255


class QPState(enum.IntEnum):
    """State of a QP (ibv_qp_state)."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6
    UNKNOWN = 7


class MigState(enum.IntEnum):
    """State of path migration (ibv_mig_state), which is not supported: always MIGRATED."""

    MIGRATED = 0
    REARM = 1
    ARMED = 2


class EventType(enum.IntEnum):
    """Kind of an asynchronous event (ibv_event_type)."""

    CQ_ERR = 0
    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    COMM_EST = 4
    SQ_DRAINED = 5
    PATH_MIG = 6
    PATH_MIG_ERR = 7
    DEVICE_FATAL = 8
    PORT_ACTIVE = 9
    PORT_ERR = 10
    LID_CHANGE = 11
    PKEY_CHANGE = 12
    SM_CHANGE = 13
    SRQ_ERR = 14
    SRQ_LIMIT_REACHED = 15
    QP_LAST_WQE_REACHED = 16
    CLIENT_REREGISTER = 17
    GID_CHANGE = 18
    WQ_FATAL = 19


class WROpcode(enum.IntEnum):
    """Operation of a send work request (ibv_wr_opcode)."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6
    LOCAL_INV = 7
    BIND_MW = 8
    SEND_WITH_INV = 9
    TSO = 10
    DRIVER1 = 11


class WCOpcode(enum.IntEnum):
    """Operation that completed (ibv_wc_opcode)."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    BIND_MW = 5
    LOCAL_INV = 6
    TSO = 7
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WCStatus(enum.IntEnum):
    """Status of a completion (ibv_wc_status)."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21
    TM_ERR = 22
    TM_RNDV_INCOMPLETE = 23


class SendFlags(enum.IntFlag):
    """Flags of a send work request (ibv_send_flags)."""

    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8
    IP_CSUM = 16


class WCFlags(enum.IntFlag):
    """Flags of a completion (ibv_wc_flags)."""

    GRH = 1
    WITH_IMM = 2
    IP_CSUM_OK = 4
    WITH_INV = 8
    TM_SYNC_REQ = 16
    TM_MATCH = 32
    TM_DATA_VALID = 64


class AccessFlag(enum.IntFlag):
    """Access of an MR or a QP (ibv_access_flags). The card has the lowest four."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    MW_BIND = 16
    ZERO_BASED = 32
    ON_DEMAND = 64
    HUGETLB = 128
    RELAXED_ORDERING = 1 << 20


class ReregFlag(enum.IntFlag):
    """Attributes that ``MR.rereg`` changes (ibv_rereg_mr_flags)."""

    CHANGE_TRANSLATION = 1
    CHANGE_PD = 2
    CHANGE_ACCESS = 4


class MTU(enum.IntEnum):
    """Path MTU (ibv_mtu)."""

    MTU_256 = 1
    MTU_512 = 2
    MTU_1024 = 3
    MTU_2048 = 4
    MTU_4096 = 5


class QPAttrMask(enum.IntFlag):
    """Attributes of a QP that a call sets or queries (ibv_qp_attr_mask)."""

    STATE = 1
    CUR_STATE = 2
    EN_SQD_ASYNC_NOTIFY = 4
    ACCESS_FLAGS = 8
    PKEY_INDEX = 16
    PORT = 32
    QKEY = 64
    AV = 128
    PATH_MTU = 256
    TIMEOUT = 512
    RETRY_CNT = 1024
    RNR_RETRY = 2048
    RQ_PSN = 4096
    MAX_QP_RD_ATOMIC = 8192
    ALT_PATH = 16384
    MIN_RNR_TIMER = 32768
    SQ_PSN = 65536
    MAX_DEST_RD_ATOMIC = 131072
    PATH_MIG_STATE = 262144
    CAP = 524288
    DEST_QPN = 1048576
    RATE_LIMIT = 33554432


class SrqAttrMask(enum.IntFlag):
    """Attributes that ``SRQ.modify`` sets (ibv_srq_attr_mask)."""

    MAX_WR = 1
    LIMIT = 2
