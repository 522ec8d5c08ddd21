"""Parameters of the request or acceptance of a connection (rdma_conn_param)."""

from dataclasses import dataclass, field
from typing import Annotated, Self

from ..connection.connection import Offer
from ..terms.checks import Range, check_ranges, unsigned
from ..terms.errors import InvalidValue
from ..verbs.qp import QP
from ..verbs.qp_attr import RD_ATOMIC_MAX

_RETRIES_MAX = 7
_Depth = Annotated[int, Range(0, RD_ATOMIC_MAX)]
_Retries = Annotated[int, Range(0, _RETRIES_MAX)]


@dataclass(eq=False)
class ConnParam:
    """Parameters of a connection.

    Attributes
    ----------
    resources : int
        Largest number of outstanding reads and atomics of the peer.
    depth : int
        Largest number of outstanding reads and atomics of this end.
    flow_control : int
        No effect.
    retry, rnr_retry : int
        As ``retry_cnt`` and ``rnr_retry`` of a QP.
    srq : int
        True if the QP uses an SRQ; ignored if the CMID has a QP.
    qp_num : int
        Number of the QP, if the CMID has none.
    data_len : int
        Largest number of bytes of private data: up to 56 in a request, 196 in an acceptance.
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

    def set_private_data(self, data: bytes | bytearray | memoryview | str) -> None:
        """Set the private data for the peer, truncated to ``data_len`` bytes."""
        data = data.encode() if isinstance(data, str) else bytes(data)
        self.private_data = data[: self.data_len]

    @classmethod
    def most(cls) -> Self:
        """Return the default parameters: the largest supported values."""
        return cls(RD_ATOMIC_MAX, RD_ATOMIC_MAX, retry=_RETRIES_MAX, rnr_retry=_RETRIES_MAX)

    def offer(self, qp: QP | None, psn: int, **more: int) -> Offer:
        """Return the :class:`Offer` for the peer, of ``qp`` or of the QP that ``qp_num`` names.

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

    def __str__(self) -> str:
        lines = (("responder resources", self.resources), ("initiator depth", self.depth),
                 ("flow control", self.flow_control), ("retry count", self.retry),
                 ("rnr retry count", self.rnr_retry), ("srq", self.srq), ("qp number", self.qp_num))
        return "Connection parameters: \n" + "".join(f"{name:<4}: {value:<4}\n" for name, value in lines)
