"""How a software queue pair is set up."""

from dataclasses import dataclass

from ...terms.checks import member, unsigned
from ...terms.enums import MTU, AccessFlag

_BITS = {"timeout": 5, "retry_cnt": 3, "rnr_retry": 3, "min_rnr_timer": 5, "max_rd_atomic": 8, "max_dest_rd_atomic": 8}


@dataclass(frozen=True)
class SoftConnection:
    """What the peer must know of a software queue pair, to be handed over out of band."""

    qpn: int
    psn: int
    mac: int
    ip: int


@dataclass(frozen=True)
class RcAttr:
    """Attributes of a connection, with the names and units of the verbs (ibv_qp_attr).

    ``timeout`` is 4.096 µs · 2^timeout, 0 for ever; ``rnr_retry`` 7 for ever; ``min_rnr_timer`` a code of IBTA table
    46. ``max_rd_atomic`` READs and atomics may be under way from here, ``max_dest_rd_atomic`` to here.
    ``end_to_end_credits``: the acknowledgements tell how many receives are posted.
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

    def __post_init__(self):
        for name, bits in _BITS.items():
            unsigned(name, getattr(self, name), bits)
        member("path_mtu", self.path_mtu, MTU)
        member("qp_access_flags", self.qp_access_flags, AccessFlag)
