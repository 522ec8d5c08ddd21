"""Messages and remote operations on the QP of a CMID, one buffer each (rdma_verbs.h)."""

from ..terms.enums import AccessFlag, SendFlags, WROpcode
from ..terms.errors import InvalidValue
from ..terms.wc import WC
from ..verbs.addr import AH
from ..verbs.mr import MR
from ..verbs.pd import PD
from ..verbs.qp import QP
from ..verbs.wr import SGE, RecvWR, SendWR
from .enums import UDP_QKEY


class Work:
    """Mixin with the operations of a CMID on its QP; the class has ``qp`` and ``pd``."""

    _mrs: tuple[MR, ...] = ()

    @property
    def qp(self) -> QP | None:
        raise NotImplementedError

    @property
    def pd(self) -> PD | None:
        raise NotImplementedError

    def _register(self, size: int, access: int) -> MR:
        if self.pd is None:
            raise InvalidValue("Failed to register a MR: the CMID has no device: bind or resolve first")
        mr = MR(self.pd, size, access)
        self._mrs = (*self._mrs, mr)
        return mr

    def reg_msgs(self, size: int) -> MR:
        """Register memory to send from and to receive into."""
        return self._register(size, AccessFlag.LOCAL_WRITE)

    def reg_read(self, size: int = 0) -> MR:
        """Register memory that the peer may also read."""
        return self._register(size, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ)

    def reg_write(self, size: int = 0) -> MR:
        """Register memory that the peer may also write."""
        return self._register(size, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)

    def close_memory(self) -> None:
        """Deregister all memory."""
        for mr in self._mrs:
            mr.close()
        self._mrs = ()

    def _own_qp(self, subject: str) -> QP:
        if self.qp is None:
            raise InvalidValue(f"Failed to {subject}: the CMID has no QP")
        return self.qp

    def post_recv(self, mr: MR, length: int | None = None) -> None:
        """Post a receive into a region."""
        self._own_qp("Post Receive").post_recv(RecvWR(sg=[SGE(mr.buf, length or mr.length, mr.lkey)]))

    def post_send(self, mr: MR, flags: int = SendFlags.SIGNALED, length: int | None = None) -> None:
        """Send the contents of a region."""
        self._post("Post Send", WROpcode.SEND, mr, length or mr.length, flags)

    def post_ud_send(self, mr: MR, ah: AH, rqpn: int = 0, flags: int = SendFlags.SIGNALED,
                     length: int | None = None) -> None:
        """Send the contents of a region as a datagram, with the Q_Key of RDMA CM."""
        wr = SendWR(sg=[SGE(mr.buf, length or mr.length, mr.lkey)], send_flags=SendFlags(flags))
        wr.set_wr_ud(ah, rqpn, UDP_QKEY)
        self._own_qp("Post Send").post_send(wr)

    def post_read(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Read from the peer's memory into a region."""
        self._post("Post Read", WROpcode.RDMA_READ, mr, length, flags, rkey=rkey, remote_addr=remote_addr)

    def post_write(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Write the contents of a region into the peer's memory."""
        self._post("Post Write", WROpcode.RDMA_WRITE, mr, length, flags, rkey=rkey, remote_addr=remote_addr)

    def _post(self, subject: str, opcode: WROpcode, mr: MR, length: int, flags: int, *, rkey: int = 0,
              remote_addr: int = 0) -> None:
        sg = [SGE(mr.buf, length, mr.lkey)]
        self._own_qp(subject).post_send(SendWR(opcode=opcode, sg=sg, send_flags=SendFlags(flags), rkey=rkey,
                                               remote_addr=remote_addr))

    def get_recv_comp(self, timeout_ns: int | None = None) -> WC:
        """Wait for the completion of a receive and return it."""
        return self._own_qp("retrieve receive completion").rcq.wait(1, timeout_ns)[0]

    def get_send_comp(self, timeout_ns: int | None = None) -> WC:
        """Wait for the completion of a send request and return it."""
        return self._own_qp("retrieve send completion").scq.wait(1, timeout_ns)[0]
