"""Tests of fault rules on a link without a simulator: matches, choice by number and chance, faults, counts."""

import pytest

from weft.hdl.contract import wire
from weft.model.faults import ACTIONS, HELD_MAX, OPCODES, ActiveRule, FaultRule
from weft.model.impairments import FrameKind, Impairments, LinkConfig, opcode_of
from weft.model.settings import BadSetting
from weft.tb.test.model.test_impairments import data, psn_of, roce

ARP = wire.ETH.pack(dst=2, src=1, ethertype=wire.ETHERTYPE_ARP) + bytes(46)
ACK = roce(wire.Opcode.ACKNOWLEDGE)
DELAY_NS = 10


def ruled(*rules, config=None, seed=1, destination=b""):
    """Return a link with rules, and the rules in force."""
    link = Impairments(config or LinkConfig(delay_ns=DELAY_NS), seed)
    link.rules = [ActiveRule(rule, f"{seed}/{number}", destination) for number, rule in enumerate(rules)]
    return link, link.rules


def arrived(link, frames, gap_ns=100):
    """Return the deliveries of a train of frames in order of arrival; equal times keep their order."""
    found = [delivery for n, frame in enumerate(frames) for delivery in link.outcome(frame, n * gap_ns)]
    return sorted(found, key=lambda delivery: delivery[0])


def psns(link, count=20):
    return [psn_of(frame) for _, frame in arrived(link, map(data, range(count)))]


def test_the_third_acknowledgement_is_dropped_exactly_once():
    link, (rule,) = ruled(FaultRule(opcode="ACKNOWLEDGE", nth=3))
    frames = [frame for psn in range(10) for frame in (data(psn), roce(wire.Opcode.ACKNOWLEDGE, psn))]
    acks = [psn_of(frame) for _, frame in arrived(link, frames) if opcode_of(frame) == wire.Opcode.ACKNOWLEDGE]
    assert acks == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert (rule.matched, rule.faults) == (10, 1)
    assert link.counters.lost == {FrameKind.ACK: 1} and link.counters.lost == link.counters.destroyed


@pytest.mark.parametrize(("chosen", "lost"), [
    ({}, range(20)), ({"nth": 7}, [6]), ({"every": 6}, [5, 11, 17]), ({"count": 2}, [0, 1]),
    ({"every": 5, "count": 3}, [4, 9, 14]), ({"chance": 0}, []), ({"psn": 8}, [8]), ({"psn": 8, "nth": 2}, [])])
def test_packets_are_chosen_by_number_and_psn(chosen, lost):
    link, (rule,) = ruled(FaultRule(**chosen))
    assert psns(link) == sorted(set(range(20)) - set(lost)) and rule.faults == len(lost)


@pytest.mark.parametrize("name", OPCODES)
def test_each_name_of_an_opcode_matches_its_packets_and_no_others(name):
    link, (rule,) = ruled(FaultRule(opcode=name))
    train = [*map(roce, wire.Opcode), ARP]
    link_lost = {opcode_of(frame) for frame in train if not link.outcome(frame, 0)}
    assert link_lost == OPCODES[name] & {-1, *wire.Opcode} and rule.matched == len(link_lost)
    assert link_lost or name == "UD_SEND_ONLY"


def test_a_field_of_the_bth_excludes_other_frames():
    for field in ({"qp": 3}, {"psn": 0}):
        link, (rule,) = ruled(FaultRule(**field))
        assert link.outcome(ARP, 0) and not link.outcome(data(0), 0) and rule.matched == 1
    link, (rule,) = ruled(FaultRule(qp=4))
    assert link.outcome(data(0), 0) and rule.matched == 0


def test_a_destination_is_that_of_the_ethernet_header():
    link, _ = ruled(FaultRule(), destination=(2).to_bytes(6))
    other, _ = ruled(FaultRule(), destination=(9).to_bytes(6))
    assert not link.outcome(data(0), 0) and other.outcome(data(0), 0)


def test_duplicates_follow_at_once():
    link, _ = ruled(FaultRule(action="duplicate", nth=3))
    assert psns(link, 5) == [0, 1, 2, 2, 3, 4] and link.counters.duplicated.total() == 1


def test_a_delayed_packet_is_overtaken():
    link, _ = ruled(FaultRule(action="delay", delay_us=0.25, nth=2))
    assert psns(link, 6) == [0, 2, 3, 1, 4, 5]


def test_a_corrupted_packet_has_a_flipped_bit_and_a_frame_without_icrc_is_lost():
    link, (rule,) = ruled(FaultRule(action="corrupt"))
    [(_, frame)] = link.outcome(data(7), 0)
    assert (int.from_bytes(frame) ^ int.from_bytes(data(7))).bit_count() == 1
    assert link.outcome(ARP, 0) == [] and rule.faults == 2
    assert link.counters.corrupted == {FrameKind.DATA: 1, FrameKind.OTHER: 1}
    assert link.counters.lost == {FrameKind.OTHER: 1}
    assert Impairments(LinkConfig(corrupt=1)).outcome(ARP, 0) == []


def test_rules_combine_and_each_counts():
    link, rules = ruled(FaultRule(action="duplicate"), FaultRule(action="delay", delay_us=1), FaultRule(nth=2))
    assert [(at, psn_of(frame)) for at, frame in arrived(link, [data(0), data(1)])] == [(1010, 0)] * 2
    assert [(rule.matched, rule.faults) for rule in rules] == [(2, 2), (2, 2), (2, 1)]


def test_a_rule_counts_over_all_its_links():
    (rule,) = rules = [ActiveRule(FaultRule(nth=3))]
    links = Impairments(), Impairments()
    for link in links:
        link.rules = rules
    assert [bool(links[n % 2].outcome(data(n), n)) for n in range(5)] == [True, True, False, True, True]
    assert rule.matched == 5


def test_same_seed_and_same_packets_give_the_same_faults():
    """Other rules and chances of the link do not shift them."""
    rule = FaultRule(chance=0.3)

    def lost(*more, seed=1, **config):
        link, rules = ruled(rule, *more, seed=seed, config=LinkConfig(delay_ns=0, **config))
        return [not link.outcome(data(psn), psn) for psn in range(500)], rules[0].faults
    (first, count) = lost()
    assert lost() == (first, count) and 100 < count < 200
    assert lost(seed=2)[0] != first
    assert lost(FaultRule(action="corrupt", chance=0.5), duplicate=0.5, corrupt=0.5) == (first, count)


def test_the_number_of_held_packets_is_bounded():
    link, (rule,) = ruled(FaultRule(action="delay", delay_us=1_000_000))
    assert sum(bool(link.outcome(ACK, 0)) for _ in range(HELD_MAX + 5)) == HELD_MAX
    assert link.counters.lost.total() == 5 and rule.faults == HELD_MAX + 5
    assert link.outcome(ACK, 1e9), "the others have left"


def test_jitter_keeps_order_and_its_bound():
    link = Impairments(LinkConfig(delay_ns=50, jitter_ns=1000), seed=3)
    times = [link.outcome(data(psn), psn * 100)[0][0] - psn * 100 for psn in range(2000)]
    assert all(50 <= late <= 1050 for late in times) and max(times) > 1000
    arrivals = [late + psn * 100 for psn, late in enumerate(times)]
    assert arrivals == sorted(arrivals)


def test_a_function_before_each_frame_may_change_the_link():
    link = Impairments(LinkConfig(delay_ns=0))

    def cut(time_ns):
        if time_ns >= 300:
            link.config = LinkConfig(loss=1)
    link.before = cut
    assert psns(link, 6) == [0, 1, 2]


@pytest.mark.parametrize("bad", [
    {"action": "explode"}, {"opcode": "RDMA_WRITE_FIRST"}, {"qp": 1 << 24}, {"psn": -1}, {"nth": 0}, {"every": 0},
    {"count": 0}, {"chance": 1.5}, {"action": "delay"}, {"delay_us": 5}, {"nth": 1, "every": 2},
    {"action": "delay", "delay_us": 1e7}, {"nth": True}, {"chance": float("nan")}])
def test_impossible_rules_are_rejected(bad):
    with pytest.raises(BadSetting) as problem:
        FaultRule(**bad)
    assert problem.value.name in {*bad, "action", "every"}


def test_every_action_is_possible():
    assert all(FaultRule(action=action, delay_us=1 if action == "delay" else None) for action in ACTIONS)
