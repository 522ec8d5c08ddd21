"""Descriptors that the driver pushes to an idle card, on functional and timed cards."""

import random
from types import SimpleNamespace

import pytest

from weft.driver.device.device import Device
from weft.driver.queue.ring import HostToCardRing
from weft.driver.terms.enums import SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi, wire
from weft.model.card.host import TimedDevice
from weft.model.functional.host import FunctionalDevice
from weft.model.link import LinkConfig
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair
from weft.tb.verify.bench.register_traffic import RegisterTraffic

LENGTH = 64
SEED = drawn_seed(__name__)
FRAME_WINDOWS = [hex(abi.PUSH_BASE + abi.PUSH_PAGE_BYTES + k * abi.BLOCK_BYTES) for k in range(abi.PUSH_WINDOWS)]
WINDOWS = [hex(abi.PUSH_BASE + k * abi.BLOCK_BYTES) for k in range(abi.PUSH_WINDOWS)]


class Recorder:
    """Device that records the offsets of register writes."""

    pushes = True

    def __init__(self):
        self.offsets = []

    def alloc(self, size, align):
        return SimpleNamespace(write=lambda offset, data: None)

    def write32(self, offset, value):
        self.offsets.append(offset)

    write_block = write32


def raw_frames(groups, ring_log2=6, at_once=True, **options):
    """Send raw frames of the given lengths from one host to another, and wait after each group of them.

    Return the first one's register accesses by register.
    """
    pair = make_pair(ContextConfig(ring_log2={abi.Ring.NIC_TX: ring_log2}), **options)
    me, peer = pair.contexts
    rng, sent, got = random.Random(SEED), [], []
    peer.raw_frame_handlers.append(lambda frame, entry: got.append(bytes(frame)))
    traffic = RegisterTraffic(pair.devices[0])
    head = wire.ETH.pack(dst=peer.mac, src=me.mac, ethertype=0x8915)

    def sending():
        for lengths in groups:
            for length in lengths:
                frame = head + rng.randbytes(length - len(head))
                sent.append(frame.ljust(wire.MIN_FRAME_BYTES, b"\0"))
                me.engine.nic.send(frame, at_once=at_once)
            me.run_until(lambda: not me.transmitting, 10**9)

    def receiving():
        peer.run_until(lambda: len(got) == sum(map(len, groups)), 10**9)

    pair.run(sending, receiving)
    assert got == sent
    return traffic.writes


def pushed_frames(found):
    return sum(found[window] for window in FRAME_WINDOWS)


@pytest.mark.parametrize("device_type", [FunctionalDevice, TimedDevice])
def test_short_frames_are_pushed_with_their_bytes(device_type):
    lengths = [14, 54, 55, 59, 60, 61, 64, 65, 74, 107, 108] * 6
    found = raw_frames([[length] for length in lengths], device_type=device_type)
    entries = sum(1 + (length > abi.FRAME_HEAD_BYTES) for length in lengths)
    assert entries > 1 << 6, "the ring wraps"
    # The first one shows that the ring runs; one of two entries over the end of the ring is rung for.
    assert entries - 1 - 2 * found["nic_tx_prod"] <= pushed_frames(found) < entries
    assert 1 <= found["nic_tx_prod"] <= 3


@pytest.mark.parametrize("device_type", [FunctionalDevice, TimedDevice])
@pytest.mark.parametrize("ring_log2", [1, 2, 6])
def test_frames_of_any_length_keep_their_order(device_type, ring_log2):
    """In rings that are full, and that end between the two entries of a frame."""
    rng = random.Random(SEED)
    lengths = [rng.choice([14, 42, 54, 55, 74, 108, 109, 300, 1500]) for _ in range(150)]
    cuts = sorted(rng.sample(range(1, 150), 40))
    groups = [lengths[begin:end] for begin, end in zip([0, *cuts], [*cuts, 150], strict=True)]
    found = raw_frames(groups, ring_log2, device_type=device_type)
    assert pushed_frames(found) > 3 and found["nic_tx_prod"] >= (4 if ring_log2 < 6 else 1)


def test_frames_that_need_not_leave_at_once_share_a_doorbell():
    found = raw_frames([[60, 60, 60]] * 5, at_once=False)
    assert found["nic_tx_prod"] == 5 and not pushed_frames(found)


def test_card_without_inline_payload_gets_frames_in_memory():

    class Plain(FunctionalDevice):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.card.params = self.card.params.with_(inline_bytes=0)

    raw_frames([[60]] * 5, device_type=Plain)


def test_frames_are_pushed_while_the_card_has_pushed_ones():
    """Until it must read an entry itself: then the others follow that one."""
    ring = HostToCardRing(device := Recorder(), abi.Ring.NIC_TX, 6)
    ring.push(bytes(64))
    ring.ring_doorbell()
    ring.advance(1)
    for count in (1, 1, 2, 1):
        for _ in range(count):
            ring.push(bytes(64))
        ring.ring_doorbell()
    assert [at >= abi.PUSH_BASE for at in device.offsets] == [False, True, True, False, False]
    ring.advance(6)
    ring.push(bytes(64))
    ring.ring_doorbell()
    assert device.offsets[-1] == abi.PUSH_BASE + abi.PUSH_PAGE_BYTES + 6 * abi.BLOCK_BYTES


def writes(posts, device_type=FunctionalDevice, inline=0, **options):
    """Post writes in groups of the sizes ``posts``; return the register accesses of the first card, by register.

    The function waits for each group. With ``inline``, a write has ``inline`` bytes, which are overwritten as soon as
    it is posted, and goes to addresses of different alignment.
    """
    length = inline or LENGTH
    pair = make_pair(ContextConfig(ring_log2=8), device_type=device_type, **options)
    ends = make_endpoints(pair, length * sum(posts), window=32, inline=inline)
    me, peer, finished = *ends, []
    data = bytes(k % 251 for k in range(length * sum(posts)))
    flags = SendFlags.SIGNALED | (SendFlags.INLINE if inline else 0)
    me.mr.write(data, len(data))
    traffic = RegisterTraffic(pair.devices[0])

    def sending():
        at = 0
        for count in posts:
            for _ in range(count):
                wr = SendWR(sg=[SGE(me.mr.buf + at, length, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE, send_flags=flags)
                wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf + at)
                me.qps[0].post_send(wr)
                if inline:
                    me.mr.write(bytes(length), offset=at)
                at += length
            left = count
            while left:
                for wc in me.cq.wait(16, 10**9):
                    assert wc.status is WCStatus.SUCCESS
                    left -= 1
            me.context.run_until(lambda: not me.context.transmitting, 10**9)
        finished.append(True)

    def receiving():
        while not finished:
            peer.context.progress()
            peer.context.wait(50_000)

    pair.run(sending, receiving)
    assert peer.mr.read(len(data), 0) == data
    traffic.writes["again"] = me.qps[0].sender.counts["retransmissions"]
    close_and_check(pair, ends)
    return traffic.writes


def test_single_writes_are_pushed_once_the_ring_has_run():
    found = writes([1] * 100)
    assert [found[window] for window in WINDOWS][:4] == [1, 2, 2, 2], "indices 64 and on come round; 0 was rung for"
    assert sum(found[window] for window in WINDOWS) == 99 and found["send_prod"] == 1


def test_writes_posted_together_ring_one_doorbell():
    found = writes([1, 5, 5, 5])
    assert sum(found[window] for window in WINDOWS) <= 3 < sum(found.values())


@pytest.mark.parametrize("loss", [0, 0.1])
def test_split_push_acts_as_a_doorbell(loss):
    """The processor does not combine the writes; the first piece alone notifies the card."""

    class Pieces(FunctionalDevice):
        write_block = Device.write_block

    found = writes([1, 1, 3, 1] * 10, device_type=Pieces, forward=LinkConfig(loss=loss))
    assert sum(found[window] for window in WINDOWS) >= 15


def test_without_combined_writes_nothing_is_pushed():

    class Plain(FunctionalDevice):
        pushes = False

    found = writes([1] * 20, device_type=Plain)
    assert found["send_prod"] == 20 and not any(found[window] for window in WINDOWS)


@pytest.mark.parametrize(("length", "entries"), [(16, 1), (17, 2), (50, 2), (64, 2)])
def test_inline_write_is_pushed_with_its_data(length, entries):
    found = writes([1] * 60, inline=length)
    assert sum(found[window] for window in WINDOWS) >= 59 * entries - 2, "over the end of the ring it is rung for"
    assert found["send_prod"] <= 2


@pytest.mark.parametrize("length", [1, 16, 50, 64])
def test_lost_inline_writes_are_retransmitted(length):
    """Retransmissions have the bytes of the time of posting, also if a packet crosses a multiple of the PMTU."""
    lossy = LinkConfig(loss=0.2, duplicate=0.1, reorder_distance=1)
    assert writes([1, 7, 20] * 4, inline=length, forward=lossy)["again"] > 5


def test_card_without_inline_payload_gets_none():

    class NoPush(FunctionalDevice):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.card.params = self.card.params.with_(inline_bytes=0)

    found = writes([1] * 20, device_type=NoPush, inline=64)
    assert sum(found[window] for window in WINDOWS) == 19
