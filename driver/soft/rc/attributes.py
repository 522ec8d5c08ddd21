"""Attributes of a software queue pair."""

from dataclasses import dataclass

from ...terms.checks import member, unsigned
from ...terms.enums import MTU, AccessFlag

_BITS = {"timeout": 5, "retry_cnt": 3, "rnr_retry": 3, "min_rnr_timer": 5, "max_rd_atomic": 8, "max_dest_rd_atomic": 8}


@dataclass(frozen=True)
class SoftConnection:
    """Connection data of a software queue pair for its peer, exchanged out of band."""

    qpn: int
    psn: int
    mac: int
    ip: int


@dataclass(frozen=True)
class RcAttr:
    """Attributes of a connection, with the names and units of the verbs (ibv_qp_attr).

    ``timeout`` is 4.096 µs · 2^timeout; 0 disables it. An ``rnr_retry`` of 7 means no limit. ``min_rnr_timer`` is a
    code of IBTA table 46. ``max_rd_atomic`` and ``max_dest_rd_atomic`` limit the outstanding READs and atomics of this
    end and of the peer. With ``end_to_end_credits`` acknowledgements report the number of posted receives.
    With ``path_search`` an end whose packets go unanswered changes its UDP source port, and so its path.
    """

    path_mtu: MTU = MTU.MTU_1024
    qp_access_flags: AccessFlag = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
    timeout: int = 8
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 4
    max_rd_atomic: int = 4
    max_dest_rd_atomic: int = 4
    end_to_end_credits: bool = True
    path_search: bool = True

    def __post_init__(self):
        for name, bits in _BITS.items():
            unsigned(name, getattr(self, name), bits)
        member("path_mtu", self.path_mtu, MTU)
        member("qp_access_flags", self.qp_access_flags, AccessFlag)
