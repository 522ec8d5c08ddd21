"""Descriptors that the driver gives an idle card itself, on functional cards."""

import pytest

from weft.driver.device.device import Device
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.link import LinkConfig
from weft.tb.software.functional_pair import close_and_check, make_endpoints, make_pair
from weft.tb.software.register_traffic import RegisterTraffic

LENGTH = 64
WINDOWS = [hex(abi.PUSH_BASE + k * abi.BLOCK_BYTES) for k in range(abi.PUSH_WINDOWS)]


def writes(posts, device_type=FunctionalDevice, **options):
    """Give so many writes at a time, and wait for them; what they cost the first card, by register."""
    pair = make_pair(ContextConfig(ring_log2=8), device_type=device_type, **options)
    ends = make_endpoints(pair, LENGTH * sum(posts), window=32)
    me, peer, finished = *ends, []
    data = bytes(k % 251 for k in range(LENGTH * sum(posts)))
    me.mr.write(data, len(data))
    traffic = RegisterTraffic(pair.devices[0])

    def sending():
        at = 0
        for count in posts:
            for _ in range(count):
                wr = SendWR(sg=[SGE(me.mr.buf + at, LENGTH, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE)
                wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf + at)
                me.qps[0].post_send(wr)
                at += LENGTH
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
    close_and_check(pair, ends)
    return traffic.writes


def test_single_writes_are_pushed_once_the_ring_has_run():
    found = writes([1] * 100)
    assert [found[window] for window in WINDOWS][:4] == [1, 2, 2, 2], "indices 64 and on come round; 0 was rung for"
    assert sum(found[window] for window in WINDOWS) == 99 and found["send_prod"] == 1


def test_writes_that_come_together_are_rung_for():
    found = writes([1, 5, 5, 5])
    assert sum(found[window] for window in WINDOWS) <= 3 < sum(found.values())


@pytest.mark.parametrize("loss", [0, 0.1])
def test_a_push_in_pieces_rings_as_a_doorbell_does(loss):
    """The processor does not combine what it writes: the first piece tells all."""

    class Pieces(FunctionalDevice):
        write_block = Device.write_block

    found = writes([1, 1, 3, 1] * 10, device_type=Pieces, forward=LinkConfig(loss=loss))
    assert sum(found[window] for window in WINDOWS) >= 15


def test_without_combined_writes_nothing_is_pushed():

    class Plain(FunctionalDevice):
        pushes = False

    found = writes([1] * 20, device_type=Plain)
    assert found["send_prod"] == 20 and not any(found[window] for window in WINDOWS)
