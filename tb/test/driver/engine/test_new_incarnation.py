"""Incarnations of a QP: each has a different QPN and PSN, and packets of a former incarnation are dropped."""

import collections
import random

import pytest

from weft.driver.device.index_pool import IndexPool
from weft.driver.device.local_keys import TAGS_APART
from weft.driver.engine.qp_table import FIRST_INDEX, QpTable
from weft.driver.terms.enums import QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QPAttr, connected_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import PRESETS
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair

LENGTH = 4_096


class ConnectedQps:
    """Two connected QPs whose frames are recorded, and which can be reset and connected again, all else being equal."""

    def __init__(self):
        self.pair = make_pair()
        self.ends = make_endpoints(self.pair, LENGTH, path_mtu=1)
        self.qps = [end.qps[0] for end in self.ends]
        self.frames, self.lost = ([], []), False
        for host, link in enumerate(self.pair.links):
            link.drop = lambda frame, host=host: self.frames[1 - host].append(frame) or self.lost

    def run(self):
        for _ in range(60):
            for context in self.pair.contexts:
                context.progress()
            self.pair.loop.run(self.pair.loop.now_ns + 1_000)

    def write(self, wr_id):
        me, you = self.ends
        wr = SendWR(wr_id, sg=[SGE(me.mr.buf, LENGTH, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE_WITH_IMM,
                    send_flags=SendFlags.SIGNALED)
        wr.set_wr_rdma(you.mr.rkey, you.mr.buf)
        self.qps[1].post_recv(RecvWR(wr_id))
        self.qps[0].post_send(wr)
        self.run()

    def begin_again(self, **attributes):
        for qp in self.qps:
            qp.reset()
        for end, peer in (self.ends, self.ends[::-1]):
            end.connect(peer.connections, path_mtu=1, **attributes)


def test_frames_of_an_earlier_incarnation_are_dropped():
    """Frames with the PSNs of the present incarnation are dropped, too: acknowledgements, reports, data and probes."""
    pair = ConnectedQps()
    old = [qp.attr.sq_psn for qp in pair.qps]
    pair.pair.links[0].drop = lambda frame, seen=[]: (   # the third packet is lost, reported and sent again
        pair.frames[1].append(frame) or seen.append(frame) or len(seen) == 3)
    pair.write(1)
    assert [wc.status for wc in pair.ends[0].cq.take(4)[1]] == [WCStatus.SUCCESS]
    assert len(pair.ends[1].cq.take(4)[1]) == 1
    former = [list(frames) for frames in pair.frames]
    for qp, psn in zip(pair.qps, old, strict=True):
        qp.reset()
        assert qp.attr.sq_psn != psn, "the same PSN by chance, or always"
        qp.attr.sq_psn = psn        # the worst case
    for end, peer in (pair.ends, pair.ends[::-1]):
        end.connect(peer.connections, path_mtu=1)
    pair.ends[0].mr.write(b"new" * 1_000)
    pair.pair.links[0].drop = lambda frame: True
    pair.write(2)
    kinds = collections.Counter()
    raw = pair.pair.contexts[0].counts["raw_frames"]
    for host, frames in enumerate(former):
        card = pair.pair.devices[host].card
        for frame in frames:
            dropped = card.counters["drop_stale_generation"]
            card.receive(frame)
            pair.run()
            kinds[wire.Opcode(frame[wire.BTH_OFFSET])] += 1
            assert card.counters["drop_stale_generation"] == dropped + 1
    opcode = wire.Opcode
    assert {opcode.ACKNOWLEDGE, opcode.LOSS_REPORT, opcode.WRITE_ONLY, opcode.RETX_WRITE} <= set(kinds)
    assert pair.pair.contexts[0].counts["raw_frames"] == raw
    assert not any(len(end.cq) for end in pair.ends), "a write that did not happen completed"
    sender, receiver = pair.qps[0].sender, pair.qps[1].receiver
    assert sender.queue.una == old[0] == receiver.cum == receiver.base and not sender.counts["stray_acks"]
    pair.pair.links[0].drop = lambda frame: False
    for _ in range(20):
        pair.run()
    assert [wc.wr_id for wc in pair.ends[0].cq.take(4)[1]] == [2]
    assert pair.ends[1].mr.read(3_000, 0) == b"new" * 1_000
    for end in pair.ends:
        end.cq.take(4)
    close_and_check(pair.pair, pair.ends)


def test_each_incarnation_has_a_separate_number_and_psn():
    pair = ConnectedQps()
    qp = pair.qps[0]
    seen = {(qp.qp_num, qp.attr.sq_psn)}
    places = {qp.index}
    for _ in range(300):        # more than the generation field of a report distinguishes
        pair.begin_again()
        seen.add((qp.qp_num, qp.attr.sq_psn))
        places.add(qp.index)
    assert len({number for number, _ in seen}) == 301 and len({psn for _, psn in seen}) > 290 and len(places) == 1
    pair.write(5)
    assert [wc.qp_num for wc in pair.ends[0].cq.take(4)[1]] == [qp.qp_num]
    pair.ends[1].cq.take(4)
    close_and_check(pair.pair, pair.ends)


def test_program_may_set_the_psn_of_an_incarnation():
    pair = ConnectedQps()
    qp = pair.qps[0]
    qp.reset()
    attr = connected_attr(pair.qps[1].connection)
    qp.to_init(attr)
    qp.to_rtr(attr)
    qp.to_rts(QPAttr(sq_psn=77))
    assert qp.attr.sq_psn == qp.sender.queue.next_psn == 77
    qp.reset()
    assert qp.attr.sq_psn != 77 and qp.qp_state is QPState.RESET
    close_and_check(pair.pair, pair.ends)


@pytest.mark.parametrize("qps", [4, *(preset.qps for preset in PRESETS.values())])
def test_qp_numbers_are_reused_last(qps):
    table = QpTable(qps, random.Random(3))
    bits = table.index_bits
    first = [table.new_number() for _ in range(qps - FIRST_INDEX)]
    assert sorted(abi.split_qpn(number, bits)[0] for number in first) == list(range(FIRST_INDEX, qps))
    with pytest.raises(MemoryError):
        table.new_number()
    order = random.Random(4).sample(first, len(first))
    for number in order:
        table.free_number(number)
    again = [table.new_number() for _ in first]
    assert [abi.split_qpn(number, bits)[0] for number in again] == [abi.split_qpn(n, bits)[0] for n in order]
    assert not set(again) & set(first)


def test_number_repeats_after_all_generations():
    table = QpTable(16384, random.Random(3))
    number = table.new_number()
    pair = (1 << wire.QPN_BITS) // 16384 - 1
    numbers = [number]
    for _ in range(pair):
        numbers.append(number := table.next_number(number))
    assert len(set(numbers)) == pair and numbers[-1] == numbers[0] and max(numbers) < (1 << wire.QPN_BITS) - 1
    assert len({number % 16384 for number in numbers}) == 1


def test_two_programs_begin_with_different_numbers():
    firsts = {QpTable(16, random.Random(seed)).new_number() for seed in range(50)}
    assert len(firsts) > 45
    first, second = (make_pair(seed=None).contexts[0].qps.new_number() for _ in range(2))
    assert first != second


def test_memory_indices_and_tags_are_reused_last():
    pool = IndexPool(5, "things")
    taken = [pool.take() for _ in range(5)]
    for index in (3, 1, 4):
        pool.release(index)
    assert [pool.take() for _ in range(3)] == [3, 1, 4] and taken == list(range(5))
    pair = make_pair()
    ends = make_endpoints(pair, LENGTH)
    local, remote = collections.defaultdict(list), collections.defaultdict(list)
    free = pair.contexts[0].capabilities.max_mr - 1
    for _ in range(3 * TAGS_APART):
        with MR(ends[0].pd, 64, abi.AccessFlag.LOCAL_WRITE) as mr:
            local[mr.index].append(mr.lkey)
            remote[mr.index].append(mr.rkey)
    for keys in (local, remote):
        assert len(keys) == free and all(len(set(some)) == len(some) for some in keys.values())
    close_and_check(pair, ends)
