"""Tests of the timing model: writes that share the card's stream."""

from weft.driver.terms.enums import AccessFlag
from weft.driver.verbs.context import Context
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.hdl.contract import abi
from weft.model.card.host import TimedDevice
from weft.model.card.pcie import Pcie, Read
from weft.model.card.timing import CYCLE_NS, TIMING, HostTiming, edge
from weft.model.card.transmit import RAW_FRAMES, RAW_WAITED
from weft.model.loop import EventLoop
from weft.tb.verify.bench.model_card import MIB, PMTU, Haul


def test_reads_reserve_space_for_their_completions():
    """Reserve completion headers as if the host split completions finely, until it has proved that it does not."""
    loop = EventLoop()
    pcie, done = Pcie(loop, TIMING, HostTiming(read_jitter=0)), []
    outstanding, out = [], []
    loop.run(100)
    ask, pcie._ask = pcie._ask, lambda read: (out.append(pcie.writes.read_out), ask(read))
    for _ in range(3):
        begin = len(out)
        for _ in range(40):
            pcie.line(loop.now_ns, 0, Read(0, 1024, done.append))
        loop.run(loop.now_ns + 900)      # no completion has arrived yet
        outstanding.append(len(out) - begin)
        loop.run(loop.now_ns + 100_000)
    assert len(out) == 120 and all(after - at >= 2 * CYCLE_NS for at, after in zip(out, out[1:], strict=False))
    assert outstanding == [8, 24, 24]
    assert done == sorted(done)


def test_doorbell_follows_completions_on_the_link():
    loop = EventLoop()
    device, written = TimedDevice(loop, preset="test", host=HostTiming(read_jitter=0)), []
    device.card.write = lambda offset, value: written.append((loop.now_ns, value))
    loop.run(100)
    pcie, answered = device.card.pcie, []
    pcie.line(loop.now_ns, 0, Read(0, 256, answered.append))
    loop.run(100_000, lambda: bool(answered))
    begin = loop.now_ns         # the completion begins to cross the link
    for value in (1, 2):
        device.write32(0, value)
    takes = (256 + TIMING.completion_header_bytes) / TIMING.pcie_bytes_per_ns
    loop.run(100_000)
    first = edge(begin + takes + TIMING.register_write)
    assert written == [(first, 1), (edge(first + TIMING.register_pace), 2)]


def test_fifth_raw_frame_waits_for_the_read_of_the_first():
    loop = EventLoop()
    card = TimedDevice(loop, preset="test", host=HostTiming(read_jitter=0)).card
    path, entered, read = card.transmit_path, [], []
    enter, path._enter = path._enter, lambda *found: (entered.append(loop.now_ns + found[4]), enter(*found))
    framed, path._raw_framed = path._raw_framed, lambda job: (read.append(loop.now_ns), framed(job))
    buffer = card.memory.watched.alloc(4096, 4096, True, 4096)
    entry = abi.NIC_TX.pack(address=buffer.physical(0), length=126)
    card.rings._ready[abi.Ring.NIC_TX].extend([(entry, 0.0)] * (RAW_FRAMES + 1))
    loop.run(100)
    path.start()
    assert entered == [loop.now_ns + TIMING.frame_descriptor] * RAW_FRAMES
    loop.run(10_000, lambda: len(entered) > RAW_FRAMES)
    assert entered[-1] == read[0] + RAW_WAITED + TIMING.frame_descriptor


def test_page_table_entries_are_read_before_a_region_is_registered():
    loop = EventLoop()
    device, reads = TimedDevice(loop, preset="test", host=HostTiming(read_jitter=0)), []
    context = Context(device, mac=1, ip=1)
    ask = device.card.pcie.line
    device.card.pcie.line = lambda at, client, read: (reads.append(read.bytes), ask(at, client, read))
    begin = loop.now_ns
    MR(PD(context), 70 * 4096, AccessFlag.LOCAL_WRITE)
    assert sorted(reads)[-3:] == [64, 256, 256] and sum(reads) > 640      # 70 entries, and the commands themselves
    assert loop.now_ns - begin > 3 * device.card.pcie.host.read_latency_ns


def test_short_transfer_reports_its_rate():
    haul = Haul(2 * MIB, rtt_ns=20_000, loss=0.01).run()
    lost = sum(haul.pair.links[0].counters.lost.values())
    assert lost and haul.pair.devices[0].card.counters["tx_retransmissions"] == lost
    assert haul.packets == 2 * MIB // PMTU + lost and haul.seconds > 0
