"""Frames that the software RDMA of Linux 6.1 (rxe) sent to this endpoint, decoded field by field, with ICRC."""

import pytest

from weft.driver.soft.rc.opcodes import RcOpcode
from weft.driver.soft.rc.packet import RcPacket, parse
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.rc_pair import IPS

NAK = ("02000000000a525400123456080045000030d8c7400040114de10a00000b0a00000ac11012b7001c00001100ffff00000010"
       "00001e656000000050753954")
ATOMIC = ("02000000000a525400123456080045000038da1b400040114c850a00000b0a00000ac11012b7002400001200ffff00000010"
          "00001f2f1f0000090000000000000000445bc7d6")
READ = ("02000000000a52540012345608004500003cda81400040114c1b0a00000b0a00000ac11012b7002800000c00ffff00000010"
        "8012349100000100000003e8000000630000ea6030edc692")
SEND_IMM = ("02000000000a525400123456080045000038db7c400040114b240a00000b0a00000ac11012b7002400000530ffff00000010"
            "801234cf00c0ffee030a11181f00000086bd27e3")
FETCH_ADD = ("02000000000a525400123456080045000048db85400040114b0b0a00000b0a00000ac11012b7003400001400ffff00000010"
             "801234d3000001000000000000000063000000000000000500000000000000000ba47949")
SWAP = ("02000000000a525400123456080045000048db86400040114b0a0a00000b0a00000ac11012b7003400001300ffff00000010"
        "801234d40000010000000000000000630000000000000063000000000000002ff2245f34")


@pytest.mark.parametrize(("frame", "opcode", "psn", "fields"), [
    (NAK, RcOpcode.ACKNOWLEDGE, 7781, {"syndrome": 0x60}),
    (ATOMIC, RcOpcode.ATOMIC_ACKNOWLEDGE, 7983, {"syndrome": 0x1F, "msn": 9}),
    (READ, RcOpcode.READ_REQUEST, 0x123491, {"ack_req": 1, "va": (1 << 40) + 1000, "rkey": 99, "dma_length": 60_000}),
    (SEND_IMM, RcOpcode.SEND_ONLY_IMM, 0x1234CF, {"ack_req": 1, "imm": 0xC0FFEE, "payload": b"\x03\x0a\x11\x18\x1f"}),
    (FETCH_ADD, RcOpcode.FETCH_ADD, 0x1234D3, {"ack_req": 1, "va": 1 << 40, "rkey": 99, "swap_add": 5}),
    (SWAP, RcOpcode.COMPARE_SWAP, 0x1234D4, {"ack_req": 1, "va": 1 << 40, "rkey": 99, "swap_add": 99, "compare": 47}),
])
def test_frame_of_linux_is_parsed(frame, opcode, psn, fields):
    assert parse(bytes.fromhex(frame), MACS[0], IPS[0]) == RcPacket(opcode, 16, psn, src_ip=IPS[1], **fields)
