"""Work requests."""

from dataclasses import dataclass, field

from ..terms.enums import SendFlags, WROpcode


@dataclass
class SGE:
    """Scatter-gather entry: local virtual address, bytes, lkey."""

    addr: int
    length: int
    lkey: int


@dataclass
class SendWR:
    """A send work request."""

    wr_id: int = 0
    num_sge: int = 0
    sg: list = field(default_factory=list)
    opcode: WROpcode = WROpcode.RDMA_WRITE
    send_flags: SendFlags = SendFlags.SIGNALED
    imm_data: int = 0
    rkey: int = 0
    remote_addr: int = 0

    def set_wr_rdma(self, rkey, addr):
        """Where an RDMA operation goes."""
        self.rkey, self.remote_addr = rkey, addr


@dataclass
class RecvWR:
    """A receive work request."""

    wr_id: int = 0
    num_sge: int = 0
    sg: list = field(default_factory=list)
