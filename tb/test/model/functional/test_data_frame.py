"""Tests of frames of data packets as objects."""

import random
from dataclasses import fields

from weft.driver.terms.enums import MTU
from weft.hdl.contract import abi, wire
from weft.model.functional.data_frame import DataFrame, addresses, work_frames
from weft.model.functional.parse import RxHeader, parse
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.hostile import pair, works
from weft.tb.verify.programs.local import local_daemon

SEED = drawn_seed(__name__)


MAC, IP = 0x02_0000_0000_01, 0x0A00_0001       # of the sender


def fields_of(header):
    return {field.name: getattr(header, field.name) for field in fields(RxHeader)}


def test_frame_fields_equal_its_bytes():
    print(f"run it again with WEFT_SEED={SEED}")
    rng = random.Random(SEED)
    data = rng.randbytes(8192)
    some = int.from_bytes(abi.HOST_QPNS.pack(ranged=1, log2=23, first=0), "little")     # half of all QPNs
    seen = set()
    for _ in range(100):
        work = abi.WORK.unpack(abi.WORK.pack(
            opcode=rng.choice(abi.WRITES), pmtu=rng.choice(list(MTU)).value, retransmit=rng.randrange(2),
            ack_req=rng.randrange(2), length=rng.choice([0, 1, rng.randrange(8000)]), psn=rng.getrandbits(32),
            rsn=rng.getrandbits(24), remote_va=rng.getrandbits(40), local_va=0, rkey=rng.getrandbits(32),
            lkey=0, imm=rng.getrandbits(32), dqpn=rng.getrandbits(24), sqpn=1, dst_ip=rng.getrandbits(32),
            dst_mac=rng.getrandbits(46) << 2, sport=rng.getrandbits(16)))
        for frame in work_frames(work):
            frame.payload = data[frame.local_va:frame.local_va + frame.length]
            frame.addresses, frame.src_ip = addresses(work.dst_mac, MAC), IP
            for mac, ip in ((work.dst_mac, work.dst_ip), (0, 0), (work.dst_mac ^ 4, work.dst_ip), (0, ~work.dst_ip)):
                for qpns in (0, some):
                    header, payload = parse(bytes(frame), mac=mac, ip=ip, host_qpns=qpns)
                    taken = fields_of(frame) == fields_of(header) and frame.payload == payload
                    assert taken == frame.reaches(mac, ip, qpns)
            assert frame.addresses == bytes(frame)[:12] and frame[12:20] == bytes(frame)[12:20]
            assert len(frame) == len(bytes(frame)) and bytes(frame)[wire.BTH_OFFSET] == frame.opcode
            seen.add(frame.opcode)
    assert seen == set(wire.DATA_OPCODES)


def test_served_functional_cards_exchange_data_without_bytes_of_frames(monkeypatch):
    """No tap, rule or damage needs the bytes, although a range of QPNs is the host's."""
    made = []
    build = DataFrame.__bytes__
    monkeypatch.setattr(DataFrame, "__bytes__", lambda frame: made.append(frame) or build(frame))
    with local_daemon() as (daemon, messages):
        ends = pair(daemon)
        works(*ends)
        works(*ends[::-1])
        cards = [device.card for device in daemon.backend.devices]
        assert all(card.registers["host_qpns"] and card.counters["tx_packets"] for card in cards)
        assert not made and not messages
        for end in ends:
            end.close()
