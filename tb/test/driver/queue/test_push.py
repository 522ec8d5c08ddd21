"""Descriptors that the driver pushes to an idle card, on functional cards."""

import pytest

from weft.driver.device.device import Device
from weft.driver.terms.enums import SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair
from weft.tb.verify.bench.register_traffic import RegisterTraffic

LENGTH = 64
WINDOWS = [hex(abi.PUSH_BASE + k * abi.BLOCK_BYTES) for k in range(abi.PUSH_WINDOWS)]


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
