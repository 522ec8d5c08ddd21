"""Bring-up, rings, commands, memory registration, raw frames and the verbs objects, on a functional card."""

import random
import subprocess
import sys

import pytest

from weft.driver.device.page_table import RangeAllocator, page_list
from weft.driver.protocol.control import ControlFrame
from weft.driver.queue.command import CommandError
from weft.driver.queue.control_frames import control_extension, parse_control
from weft.driver.queue.ring import CardToHostRing, HostToCardRing
from weft.driver.terms.enums import AccessFlag, QPState, WROpcode
from weft.driver.verbs.context import Context, ContextConfig, IncompatibleCard
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi, wire
from weft.model.functional.host import FunctionalDevice, connected_pair
from weft.model.functional.memory import AccessError
from weft.model.loop import EventLoop

MAC, IP = 0x02_0000_0000_0A, 0x0A00_000A
WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE


def open_one(**config):
    return Context(FunctionalDevice(EventLoop()), mac=MAC, ip=IP, config=ContextConfig(**config))


def test_bring_up_reads_capabilities_and_sets_registers():
    context = open_one(reorder_distance=5, prefetch_depth=64)
    can = context.capabilities
    assert can.version == abi.VERSION and can.max_qp == 16 and can.max_pte == 4096
    registers = context.device.card.registers
    assert registers["reorder_distance"] == 5 and registers["control"] == 1
    assert registers["prefetch_depth"] == context.capabilities.max_prefetch_depth
    assert context.device.card.mac == MAC
    context.close()
    assert not context.device.memory._pages


@pytest.mark.parametrize(
    ("register", "value", "message"), [("magic", 0xFFFFFFFF, "no Weft card"), ("version", 9 << 24, "version 9.0.0")]
)
def test_other_devices_are_rejected(register, value, message):
    device = FunctionalDevice(EventLoop())
    read = device.read32
    device.read32 = lambda offset: value if offset == abi.REGISTER[register].offset else read(offset)
    with pytest.raises(IncompatibleCard, match=message):
        Context(device, mac=MAC, ip=IP)


def test_rejected_command_raises_with_its_status():
    context = open_one()
    with pytest.raises(CommandError, match="QP_DESTROY failed: BAD_INDEX"):
        context.commands.call(abi.CommandOpcode.QP_DESTROY, qpn=3)


def test_responses_match_commands_in_flight():
    context = open_one(ring_log2=2)
    seen = []
    for qpn in range(20):
        context.commands.submit(abi.CommandOpcode.QP_QUERY, lambda r, q=qpn: seen.append((q, r.status)), qpn=qpn)
    context.run_until(lambda: len(seen) == 20, 10**6)
    assert [q for q, _ in seen] == list(range(20))


def test_statistics():
    context = open_one()
    numbers = context.statistics()
    assert set(numbers) == set(abi.COUNTER_INDEX) and numbers["tx_packets"] == 0


@pytest.mark.parametrize("log2", [1, 3])
def test_rings_wrap_with_phase(log2):
    device = FunctionalDevice(EventLoop())
    down = HostToCardRing(device, abi.Ring.SEND, log2)
    up = CardToHostRing(device, abi.Ring.META_REPORT, log2)
    depth = 1 << log2
    for n in range(5 * depth):
        entry = bytes([n & 0xFE]) + bytes(63)
        down.push(entry, n)
        down.ring_doorbell()
        assert down.buffer.read(n % depth * 64, 1)[0] == n & 0xFE | (1 - n // depth % 2)
        if n % 2:
            assert down.space == depth - 2
            assert down.advance((n + 1) % (2 * depth)) == [n - 1, n]
    for n in range(5 * depth):
        assert up.poll() == []
        up.buffer.write(n % depth * 64, bytes([n & 0xFE | (1 - n // depth % 2)]) + bytes(63))
        assert len(up.poll()) == 1
        up.release()
    with pytest.raises(RuntimeError, match="finished"):
        down.advance(down._wrap(down.cons + 1))


def test_full_ring_rejects():
    ring = HostToCardRing(FunctionalDevice(EventLoop()), abi.Ring.SEND, 1)
    for _ in range(2):
        ring.push(bytes(64))
    with pytest.raises(BufferError):
        ring.push(bytes(64))


def test_scattered_pages_reach_the_page_table():
    context = open_one()
    with PD(context) as pd:
        mr = MR(pd, 700 * 4096 + 5, AccessFlag.LOCAL_WRITE)  # more entries than a command holds
        pages = page_list(mr.buffer, mr.buf, mr.length, 4096)
        assert len(pages) == 701 and sorted(pages) != pages
        entry = context.device.card.tables.mrs[mr.index]
        assert [context.device.card.tables.ptes[entry.pte_index + i] for i in range(701)] == pages
        part = MR(pd, 10_000, WRITE, mr.buf + 5_000, buffer=mr.buffer)
        assert part.read(100, 0) == mr.read(100, 5_000)
        assert context.device.card.tables.ptes[context.device.card.tables.mrs[part.index].pte_index] == pages[1]
        part.close()
        with pytest.raises(MemoryError):
            MR(pd, 4_000 * 4096, AccessFlag.LOCAL_WRITE)
    assert context.pte_ranges.free_total == context.capabilities.max_pte and not context.device.card.tables.mrs


def test_huge_pages_are_used_where_they_fit():
    context = open_one()
    with PD(context) as pd:
        mr = MR(pd, 5 << 20, AccessFlag.LOCAL_WRITE | AccessFlag.HUGETLB)
        assert mr.page_bytes == abi.PAGE_4K  # the last 2 MiB page would be incomplete
        mr = MR(pd, 4 << 20, AccessFlag.LOCAL_WRITE | AccessFlag.HUGETLB)
        assert mr.page_bytes == abi.PAGE_2M and context.device.card.tables.mrs[mr.index].pages == 2


def test_reused_index_gets_a_new_key():
    context = open_one()
    with PD(context) as pd:
        last = None
        for _ in range(50):
            with MR(pd, 64, AccessFlag.LOCAL_WRITE) as mr:
                assert mr.lkey != last and mr.lkey >> 8 == mr.index
                last = mr.lkey


def test_key_zero_is_not_assigned():
    """Memory full of zeros does not contain the key of an MR."""
    for seed in range(500):
        context = open_one(random=random.Random(seed))
        assert MR(PD(context), 64, AccessFlag.LOCAL_WRITE).lkey % (1 << abi.KEY_TAG_BITS)


def test_random_choices_use_the_given_source():
    def choices(seed):
        context = open_one(random=random.Random(seed))
        pd, cq = PD(context), CQ(context, 4)
        psns = [QP(pd, rc_init_attr(cq)).attr.sq_psn for _ in range(3)]
        return psns + [MR(pd, 64, AccessFlag.LOCAL_WRITE).lkey for _ in range(3)]

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


def test_unregistered_memory_is_protected():
    context = open_one()
    with pytest.raises(AccessError):
        context.device.memory.read(64, 64)


def test_range_allocator_merges():
    ranges = RangeAllocator(10)
    a, b, c = ranges.alloc(3), ranges.alloc(3), ranges.alloc(4)
    with pytest.raises(MemoryError):
        ranges.alloc(1)
    for start, count in ((a, 3), (c, 4), (b, 3)):
        ranges.free(start, count)
    assert ranges.alloc(10) == 0


def test_states_are_enforced():
    context = open_one()
    pd, cq = PD(context), CQ(context, 8)
    qp = QP(pd, rc_init_attr(cq))
    wr = SendWR(sg=[SGE(0, 1, 0)], opcode=WROpcode.RDMA_WRITE)
    with pytest.raises(ValueError, match="RESET"):
        qp.post_send(wr)
    qp.connect(qp.connection)
    assert qp.qp_state is QPState.RTS
    with pytest.raises(ValueError, match="RTS cannot become INIT"):
        qp.to_init(QPAttr())
    qp.close()
    with pytest.raises(ValueError, match="cannot send"):
        qp.post_send(wr)


def test_loopback_and_completion_channel():
    """A QP is connected with itself through a link that returns every frame."""
    context = open_one()
    device = context.device
    device.transmit = lambda frame: device.loop.call_in(1_000, device.card.receive, frame)
    pd, channel = PD(context), CompChannel(context)
    cq = CQ(context, 8, channel=channel)
    qp = QP(pd, rc_init_attr(cq))
    qp.connect(qp.connection)
    mr = MR(pd, 20_000, WRITE)
    mr.write(bytes(range(250)) * 40)
    cq.req_notify()
    halves = [SGE(mr.buf, 5_000, mr.lkey), SGE(mr.buf + 5_000, 5_000, mr.lkey)]
    wr = SendWR(wr_id=3, sg=halves, opcode=WROpcode.RDMA_WRITE)
    wr.set_wr_rdma(mr.rkey, mr.buf + 10_000)
    qp.post_send(wr)
    assert channel.get_cq_event(timeout_ns=10**6) is cq
    count, (wc,) = cq.poll(4)
    assert count == 1 and wc.wr_id == 3 and wc.byte_len == 10_000
    assert mr.read(10_000, 10_000) == bytes(range(250)) * 40
    pd.close()


def test_raw_frames_cross():
    loop, devices, _ = connected_pair()
    contexts = [Context(d, mac=MAC + i, ip=IP + i) for i, d in enumerate(devices)]
    got = []
    contexts[1].raw_frame_handlers.append(lambda frame, entry: got.append((frame, entry.roce)))
    frame = wire.ETH.pack(dst=MAC + 1, src=MAC, ethertype=0x8915) + b"hello"
    contexts[0].send_raw(frame)
    contexts[1].run_until(lambda: got, 10**6)
    assert got == [(frame.ljust(60, b"\0"), 0)]
    with pytest.raises(ValueError, match="bytes"):
        contexts[0].send_raw(bytes(5_000))


@pytest.mark.parametrize(
    "opcode", [wire.Opcode.ACKNOWLEDGE, wire.Opcode.LOSS_REPORT, wire.Opcode.PROBE, wire.Opcode.REPORT_REQUEST,
               wire.Opcode.RECEIVE_LIMIT]
)
def test_control_frames_survive(opcode):
    control = ControlFrame(
        opcode,
        7,
        rsn=(1 << 24) + 5,
        syndrome=wire.Syndrome.ACK,
        msn=3,
        limited=True,
        serial=(1 << wire.LIMIT_SERIAL_BITS) + 6,
        payload=bytes(range(64)) if opcode is wire.Opcode.LOSS_REPORT else b"",
    )
    frame = wire.build_frame(
        opcode=opcode,
        dst_mac=1,
        src_mac=2,
        src_ip=3,
        dst_ip=4,
        sport=5,
        dest_qp=6,
        psn=7,
        extensions=control_extension(control),
        payload=control.payload,
    )
    back = parse_control(frame.ljust(80, b"\0"))
    assert (back.opcode, back.psn, back.dest_qp, back.src_ip, back.payload) == (opcode, 7, 6, 3, control.payload)
    if opcode is wire.Opcode.ACKNOWLEDGE:
        assert (back.syndrome, back.msn) == (wire.Syndrome.ACK, 3)
    elif opcode is wire.Opcode.RECEIVE_LIMIT:
        assert (back.limited, back.serial) == (1, 6)
    else:
        assert back.rsn == 5
    assert parse_control(frame[:50]) is None


def test_driver_imports_only_the_standard_library():
    code = (
        "import sys, pkgutil, importlib, weft.driver as d\n"
        "for m in pkgutil.iter_modules(d.__path__):\n"
        "    m.name in ('cli', 'regs_doc') or importlib.import_module('weft.driver.' + m.name)\n"
        "import weft.model.link, weft.model.functional.host\n"
        "bad = {'amaranth', 'cocotb', 'numpy', 'scapy'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
