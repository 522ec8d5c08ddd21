"""What a connection is asked for or accepted with (rdma_conn_param)."""

from dataclasses import dataclass, field
from typing import Annotated

from ..connection.connection import Offer
from ..terms.checks import Range, check_ranges, unsigned
from ..terms.errors import InvalidValue
from ..verbs.qp_attr import RD_ATOMIC_MAX

_RETRIES_MAX = 7
_Depth, _Retries = Annotated[int, Range(0, RD_ATOMIC_MAX)], Annotated[int, Range(0, _RETRIES_MAX)]


@dataclass(eq=False)
class ConnParam:
    """Parameters of a connection.

    Attributes
    ----------
    resources : int
        Reads and atomics of the peer that may be under way at a time.
    depth : int
        Those of this end.
    flow_control : int
        Means nothing here.
    retry, rnr_retry : int
        As ``retry_cnt`` and ``rnr_retry`` of a QP.
    srq : int
        True if the QP uses one; of a CMID's own QP it is known.
    qp_num : int
        The QP, if the CMID has none of its own.
    data_len : int
        Bytes of private data there can be: up to 56 of a request, 196 of an acceptance.
    private_data : bytes
    """

    resources: _Depth = 1
    depth: _Depth = 1
    flow_control: int = 0
    retry: _Retries = 5
    rnr_retry: _Retries = 5
    srq: int = 0
    qp_num: int = 0
    data_len: int = 0
    private_data: bytes = field(default=b"", init=False)

    def set_private_data(self, data):
        """What the peer gets with it, as much of it as there is room for."""
        data = data.encode() if isinstance(data, str) else bytes(data)
        self.private_data = data[: self.data_len]

    @classmethod
    def most(cls):
        """What is taken when nothing is said."""
        return cls(RD_ATOMIC_MAX, RD_ATOMIC_MAX, retry=_RETRIES_MAX, rnr_retry=_RETRIES_MAX)

    def offer(self, qp, psn, **more):
        """What the peer is told, of an own QP or of the one that is named.

        Raises
        ------
        InvalidValue, TypeError
        """
        check_ranges(self)
        qpn = qp.qp_num if qp is not None else unsigned("qp_num", self.qp_num, 24)
        if not qpn:
            raise InvalidValue("there is no QP: create one with create_qp, or name one in the ConnParam")
        srq = int(qp.srq is not None if qp is not None else bool(self.srq))
        return Offer(qpn, psn, self.resources, self.depth, self.rnr_retry, srq, retry_count=self.retry, **more)

    def __str__(self):
        lines = (("responder resources", self.resources), ("initiator depth", self.depth),
                 ("flow control", self.flow_control), ("retry count", self.retry),
                 ("rnr retry count", self.rnr_retry), ("srq", self.srq), ("qp number", self.qp_num))
        return "Connection parameters: \n" + "".join(f"{name:<4}: {value:<4}\n" for name, value in lines)
