"""Work completions."""

from dataclasses import dataclass

from .enums import WCFlags, WCOpcode, WCStatus


@dataclass
class WC:
    """Work completion (ibv_wc). ``src_qp`` and ``sl`` are of datagrams; in other completions they are 0.

    ``sl`` is the kind of the header: 10 is RoCEv2 over IPv4. The other fields after ``wc_flags`` are always 0.
    """

    wr_id: int = 0
    status: WCStatus = WCStatus.SUCCESS
    opcode: WCOpcode = WCOpcode.SEND
    vendor_err: int = 0
    byte_len: int = 0
    qp_num: int = 0
    src_qp: int = 0
    imm_data: int = 0
    wc_flags: WCFlags = WCFlags(0)
    pkey_index: int = 0
    slid: int = 0
    sl: int = 0
    dlid_path_bits: int = 0
