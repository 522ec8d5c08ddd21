"""Frames for the benches of the receive path."""

from weft.hdl.contract import wire

MAC, IP = 0x02_00_00_00_00_01, 0x0A00_0001
PEER_MAC, PEER_IP = 0x02_00_00_00_00_02, 0x0A00_0002


def roce(opcode, *, payload=b"", va=0x1000, rkey=0x100, rsn=0, imm=0, dma_length=None, **fields):
    """Return a valid RoCEv2 frame of any opcode in use; ``fields`` as of ``wire.build_frame``."""
    values = {
        "RETH": {"va": va, "rkey": rkey, "dma_length": len(payload) if dma_length is None else dma_length},
        "RSNH": {"rsn": rsn},
        "ImmDt": {"imm": imm},
        "AETH": {"syndrome": wire.Syndrome.ACK},
        "CNPH": {},
        "LIMH": {"limited": rsn & 1, "serial": rsn >> 1},
    }
    extensions = b"".join(layout.pack(**values[layout.name]) for layout in wire.EXTENSIONS.get(opcode, ()))
    usual = {"dst_mac": MAC, "src_mac": PEER_MAC, "src_ip": PEER_IP, "dst_ip": IP, "sport": 0xC000, "dest_qp": 3,
             "psn": 0}
    return wire.build_frame(opcode=opcode, payload=payload, extensions=extensions, **usual | fields)
