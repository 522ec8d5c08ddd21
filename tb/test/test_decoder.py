"""Tests that the independent decoder, the contract's frame builder and scapy agree with each other."""

import random

import pytest

from weft.hdl.contract import wire
from weft.tb.test.decoder import DecodeError, crc32_bits, crc32_register, decode, invariant_crc, is_roce

BASE = {"dst_mac": 0x0200_0000_0002, "src_mac": 0x0200_0000_0001, "src_ip": 0x0A00_0001, "dst_ip": 0x0A00_0002,
        "sport": 0xC123}


def random_frame(rng, opcode=None):
    """Return a frame of the contract's builder and its fields."""
    opcode = opcode or rng.choice(list(wire.EXTENSIONS))
    values, extensions = {}, b""
    payload = b""
    if opcode in wire.DATA_OPCODES:
        payload = rng.randbytes(rng.choice([0, 1, 2, 3, 4, 63, 1024, rng.randint(0, 4096)]))
    elif opcode == wire.Opcode.LOSS_REPORT:
        payload = rng.randbytes(64)
    for layout in wire.EXTENSIONS[opcode]:
        fields = {f.name: rng.getrandbits(f.width) for f in layout.fields if not f.name.startswith("_")}
        if layout is wire.RETH:
            fields["dma_length"] = len(payload)
        values |= fields
        extensions += layout.pack(**fields)
    values |= {"psn": rng.getrandbits(24), "dest_qp": rng.getrandbits(24), "ack_req": rng.getrandbits(1),
               "opcode": int(opcode), "tos": rng.getrandbits(8), "ttl": rng.randint(1, 255)}
    values |= {**BASE, "src_ip": rng.getrandbits(32), "dst_ip": rng.getrandbits(32)}
    link = {name: values[name] for name in (*BASE, "psn", "dest_qp", "ack_req", "opcode", "tos", "ttl")}
    return wire.build_frame(**link, payload=payload, extensions=extensions), values | {"payload": payload}


@pytest.mark.parametrize("opcode", list(wire.EXTENSIONS))
def test_decoder_reads_packets_of_the_contract(opcode):
    rng = random.Random(int(opcode))
    for _ in range(12):
        frame, values = random_frame(rng, opcode)
        assert is_roce(frame)
        packet = decode(frame)
        got = {name: getattr(packet, name) for name in values}
        assert got == values


def test_every_bit_flip_is_detected():
    frame, _ = random_frame(random.Random(3), wire.Opcode.LOSS_REPORT)
    free = {*range(12), 46}  # addresses of the link; the byte with the congestion bits
    for at in set(range(len(frame))) - free:
        for bit in range(8):
            bad = bytearray(frame)
            bad[at] ^= 1 << bit
            with pytest.raises(DecodeError):
                decode(bad)


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda f: f[:50], "too short"),
    (lambda f: f[:-1], "IP total length"),
    (lambda f: f[:12] + b"\x08\x06" + f[14:], "EtherType"),
    (lambda f: f[:-4] + bytes(4), "ICRC"),
    (lambda f: f[:24] + bytes(2) + f[26:], "IP header checksum"),
])
def test_error_names_the_rule(change, sentence):
    frame, _ = random_frame(random.Random(5), wire.Opcode.WRITE_ONLY)
    with pytest.raises(DecodeError, match=sentence):
        decode(change(frame))


def test_padding_must_be_zero_and_lengths_agree():
    reth = wire.RETH.pack(va=1, rkey=2, dma_length=5)
    frame = bytearray(wire.build_frame(opcode=wire.Opcode.WRITE_ONLY, **BASE, dest_qp=1, psn=1, payload=b"hello",
                                       extensions=reth))
    assert decode(frame).payload == b"hello"
    frame[-5] = 1
    frame[-4:] = invariant_crc(frame[14:-4])
    with pytest.raises(DecodeError, match="padding is not zero"):
        decode(frame)
    frame = wire.build_frame(opcode=wire.Opcode.WRITE_ONLY, **BASE, dest_qp=1, psn=1, payload=b"hell", extensions=reth)
    with pytest.raises(DecodeError, match="RETH length 5, but 4"):
        decode(frame)


def test_crc_table_equals_bit_by_bit():
    rng = random.Random(7)
    for length in (0, 1, 2, 63, 64, 200):
        data = rng.randbytes(length)
        assert crc32_register(data) == crc32_bits(data)
    assert crc32_register(b"123456789").to_bytes(4, "big") == bytes.fromhex("649c2fd3")  # CBF43926, mirrored


def test_icrc_of_a_real_card():
    """A congestion notification captured from a ConnectX-4 Lx, field by field; its ICRC is 82 fd 00 2a."""
    eth = wire.ETH.pack(dst=0xE41D_2DAB_2BC2, src=0x7CFE_9064_3B32, ethertype=wire.ETHERTYPE_IPV4)
    ip = wire.IPV4.pack(version=4, ihl=5, tos=0xC2, total_length=60, identification=0x718C, flags=2, ttl=64,
                        protocol=wire.IP_PROTO_UDP, checksum=0x9161, src=0x0A00_1101, dst=0x0A00_1201)
    udp = wire.UDP.pack(sport=0, dport=wire.ROCE_UDP_PORT, length=40)
    bth = bytes.fromhex("8100ffff4000011800000000")
    frame = eth + ip + udp + bth + bytes(16)
    assert wire.icrc(frame) == invariant_crc(frame[14:]) == bytes.fromhex("82fd002a")
    built = wire.build_frame(dst_mac=0xE41D_2DAB_2BC2, src_mac=0x7CFE_9064_3B32, src_ip=0x0A00_1101, dst_ip=0x0A00_1201,
                             sport=0, opcode=wire.Opcode.CNP, dest_qp=0x118, psn=0, extensions=wire.CNPH.pack())
    assert built[wire.BTH_OFFSET:-wire.ICRC_BYTES] == bth + bytes(16)
    assert decode(built).tos >> 2 == 0xC2 >> 2, "the class of the captured one"


def scapy_roce():
    from scapy.all import Ether
    from scapy.contrib import roce
    return roce, Ether


def test_scapy_computes_the_same_icrc():
    roce, Ether = scapy_roce()
    rng = random.Random(11)
    for opcode in wire.EXTENSIONS:
        frame, values = random_frame(rng, opcode)
        packet = Ether(frame)
        bth = packet[roce.BTH]
        assert (bth.opcode, bth.dqpn, bth.psn, bth.ackreq) == tuple(
            values[n] for n in ("opcode", "dest_qp", "psn", "ack_req"))
        assert bth.padcount == decode(frame).pad_count
        sent = bth.icrc
        bth.icrc = None
        again = bytes(packet)
        assert again == frame and int.from_bytes(frame[-4:], "big") == sent
