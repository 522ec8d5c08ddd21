"""Frames for the receive benches."""

from weft.hdl.contract import wire

MAC, IP = 0x02_00_00_00_00_01, 0x0A00_0001
PEER_MAC, PEER_IP = 0x02_00_00_00_00_02, 0x0A00_0002


def roce(opcode, *, payload=b"", psn=0, dest_qp=3, ack_req=0, va=0x1000, rkey=0x100, rsn=0, imm=0,
         dma_length=None, dst_mac=MAC, dst_ip=IP, src_ip=PEER_IP):
    """A right RoCEv2 frame of any opcode in use."""
    values = {
        "RETH": {"va": va, "rkey": rkey, "dma_length": len(payload) if dma_length is None else dma_length},
        "RSNH": {"rsn": rsn},
        "ImmDt": {"imm": imm},
        "AETH": {"syndrome": wire.Syndrome.ACK},
        "LIMH": {"limited": rsn & 1, "serial": rsn >> 1},
    }
    extensions = b"".join(layout.pack(**values[layout.name]) for layout in wire.EXTENSIONS.get(opcode, ()))
    return wire.build_frame(opcode=opcode, dst_mac=dst_mac, src_mac=PEER_MAC, src_ip=src_ip, dst_ip=dst_ip,
                            sport=0xC000, dest_qp=dest_qp, psn=psn, ack_req=ack_req, payload=payload,
                            extensions=extensions)

