"""Work completions."""

from dataclasses import dataclass

from .enums import WCFlags, WCOpcode, WCStatus


@dataclass
class WC:
    """A work completion (ibv_wc)."""

    wr_id: int
    status: WCStatus
    opcode: WCOpcode
    qp_num: int
    byte_len: int = 0
    imm_data: int = 0
    wc_flags: WCFlags = WCFlags(0)
    vendor_err: int = 0
