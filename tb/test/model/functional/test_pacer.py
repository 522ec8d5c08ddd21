"""Pacer of the functional and the timed card."""

import random

import pytest

from weft.hdl.contract import abi
from weft.model.card.host import TimedDevice
from weft.model.functional.host import FunctionalDevice
from weft.model.functional.pacer import BURST_NS, OVERHEAD_BYTES
from weft.model.functional.rings import BadEntry
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.model.functional.paced_card import PMTU, PacedCard

CARDS = pytest.mark.parametrize("device", [FunctionalDevice, TimedDevice], ids=["functional", "timed"])
LINE = 100e9
PACED, TX_ERROR = abi.ReportKind.PACED, abi.ReportKind.TX_ERROR


@CARDS
@pytest.mark.parametrize("bps", [1e6, 17e6, 1e9, 25e9, 90e9, LINE])
def test_rate(device, bps):
    card, most = PacedCard(device), 16 if bps < 1e9 else 3_200
    card.pace(0, bps)
    for _ in range(16):
        card.work(0, most // 16 * PMTU)
    packet_ns = (PMTU + OVERHEAD_BYTES) * 8e9 / bps
    card.run(1.1 * most * packet_ns + 10_000, 5e6)
    assert len(card.frames) == most
    skip = 5 + int(2 * BURST_NS / packet_ns / max(1 - bps / LINE, 0.1))      # the packets that catch up at the start
    assert card.rate(0, skip) == pytest.approx(bps, rel=1e-3)


@CARDS
def test_a_slow_qp_does_not_delay_a_fast_one(device):
    """Nor does it delay unpaced work: the descriptor leaves the ring for the pool."""
    rates = []
    for slow in (0, 1e6):
        card = PacedCard(device, 3)
        card.pace(0, 40e9)
        if slow:
            card.pace(1, slow)
        for n in range(24):
            if slow and n < 6:
                card.work(1, 16 * PMTU)
            card.work(0, 8 * PMTU)
            card.work(2, 2 * PMTU, paced=0)
            card.run(3_000, 500)
        card.run(300_000, 1_000)
        assert sum(length for _, qp, _, length, _ in card.frames if qp == 2) == 48 * PMTU
        assert len([1 for frame in card.frames if frame[1] == 1]) == (slow > 0)
        rates.append(card.rate(0))
    assert rates[1] > 0.995 * rates[0]


@CARDS
def test_a_thousand_qps(device):
    """At 80 % of the line, with rates that differ by a factor of 1,000: each rate is right, and no packet is early."""
    rng, number = random.Random(seed := drawn_seed()), 1_000
    print("seed", seed)
    card = PacedCard(device, number, 2048, qps=2048)
    shares = [10 ** (-3 * n / number) for n in range(number)]
    rng.shuffle(shares)
    rates = [0.8 * LINE * share / sum(shares) for share in shares]
    for qp in range(number):
        card.pace(qp, rates[qp])
        card.work(qp, 128 * PMTU)
        card.run(2_000, 1_000)
    start = card.loop.now_ns + 1_000_000        # all of them sent their first packets at once
    card.run(4_000_000, 10_000)
    times, measured = {}, 0
    for end, qp, *_ in card.frames:
        times.setdefault(qp, []).append(end)
    assert len(times) == number
    for qp, ends in times.items():
        packet_ns = (PMTU + OVERHEAD_BYTES) * 8e9 / rates[qp]
        assert all(end - ends[0] > n * packet_ns - 4 * BURST_NS for n, end in enumerate(ends)), qp
        steady = [end for end in ends if end > start]
        if len(steady) > 5 and len(ends) < 128:
            measured += 1
            assert abs(steady[-1] - steady[0] - (len(steady) - 1) * packet_ns) < 2 * BURST_NS, qp
    assert measured > 250, measured


@CARDS
def test_retransmissions_are_first_and_paced(device):
    card = PacedCard(device)
    card.pace(0, 10e9)
    card.work(0, 16 * PMTU)
    card.run(10_000, 500)
    begun = len(card.frames)
    assert 0 < begun < 10
    card.work(0, 2 * PMTU, again=True, psn=0)
    card.run(60_000, 500)
    kinds = [retransmission for *_, retransmission in card.frames]
    assert kinds.count(1) == 2 and kinds.index(1) <= begun + 5 and kinds[kinds.index(1) + 1] == 1
    assert len(kinds) == 18 and card.rate(0, 3) == pytest.approx(10e9, rel=1e-3)
    assert [(report.kind, report.psn, report.retransmission) for report in card.reports] == [
        (PACED, 2, 1), (PACED, 16, 0)]
    assert all(0 <= card.frames[-1][0] - card.reports[-1].time_ns < 1_000 or
               report.time_ns < card.reports[-1].time_ns for report in card.reports)


@CARDS
def test_limit(device):
    """New packets wait for it, retransmissions do not. It is compared modulo 2^32."""
    card = PacedCard(device)
    first = (1 << 32) - 3
    card.pace(0, 50e9, limit=first + 2)
    card.work(0, 8 * PMTU, psn=first)
    card.run(20_000, 500)
    assert [psn for _, _, psn, *_ in card.frames] == [first % (1 << 24), (first + 1) % (1 << 24)]
    card.work(0, PMTU, again=True, psn=first)
    card.run(20_000, 500)
    assert [again for *_, again in card.frames] == [0, 0, 1]
    card.pace(0, 50e9, limit=first + 5)
    card.run(20_000, 500)
    assert len(card.frames) == 6
    card.pace(0, 50e9)
    card.run(20_000, 500)
    assert len(card.frames) == 9 and [report.psn for report in card.reports] == [first + 1, 5]


@CARDS
def test_a_new_rate_holds_at_once(device):
    card = PacedCard(device)
    card.pace(0, 1e6)
    card.work(0, 8 * PMTU)
    card.run(100_000, 1_000)
    assert len(card.frames) == 1
    card.pace(0, 20e9)
    card.run(6_000, 500)
    assert len(card.frames) >= 3
    card.pace(0, 1e6)
    before = len(card.frames)
    card.run(100_000, 1_000)
    assert len(card.frames) <= before + 2


@CARDS
@pytest.mark.parametrize("command", ["modify", "destroy"])
def test_the_pool_is_flushed(device, command):
    card = PacedCard(device, 2)
    for qp in range(2):
        card.pace(qp, 1e6)
        card.work(qp, 4 * PMTU)
        card.work(qp, PMTU, again=True, psn=0)
    card.run(100_000, 1_000)
    assert card.card.pacer.used == 2 and [report.psn for report in card.reports] == [1, 1]
    number = card.host.qps[0].qp_num
    opcode = abi.CommandOpcode.QP_MODIFY if command == "modify" else abi.CommandOpcode.QP_DESTROY
    fields = {"qp_state": abi.QpState.ERR} if command == "modify" else {}
    card.engine.commands.call(opcode, qpn=number, **fields)
    assert card.card.pacer.used == 1
    frames = len(card.frames)
    card.pace(0, 0)
    card.pace(1, 1e9)
    card.run(300_000, 1_000)
    assert {qp for _, qp, *_ in card.frames[frames:]} == {1}
    assert [report.psn for report in card.reports if report.qpn == card.index(1)] == [1, 4]


@CARDS
def test_a_rejected_packet_discards_the_work_of_its_qp(device):
    card = PacedCard(device, 2)
    for qp in range(2):
        card.pace(qp, 10e9)
        card.work(qp, 4 * PMTU)
    card.work(0, PMTU, lkey=0)
    card.work(0, PMTU)
    card.work(0, PMTU)
    card.run(60_000, 500)
    kinds = [(report.kind, report.psn) for report in card.reports if report.qpn == card.index(0)]
    assert kinds == [(PACED, 4), (TX_ERROR, 4)]
    assert [report.kind for report in card.reports if report.qpn == card.index(1)] == [PACED]
    assert card.card.pacer.used == 0 and len(card.frames) == 8


@CARDS
def test_a_full_pool_rejects(device):
    card = PacedCard(device, pool=4)
    card.pace(0, 1e6)
    card.card.checks_driver = False
    for _ in range(6):
        card.work(0, PMTU)
    card.run(100_000, 1_000)
    assert [(report.kind, report.reason, report.psn) for report in card.reports] == [
        (TX_ERROR, abi.Reason.BAD_DESCRIPTOR, 4), (PACED, abi.Reason.OK, 6)]
    card.card.checks_driver = True
    for _ in range(6):
        card.work(0, PMTU)
    with pytest.raises(BadEntry, match="all 4 descriptors of the pacer"):
        card.run(10_000, 500)


@CARDS
def test_a_disabled_card_sends_nothing(device):
    card = PacedCard(device)
    card.pace(0, 10e9)
    card.work(0, 8 * PMTU)
    card.run(5_000, 500)
    control = abi.REGISTER["control"].offset
    card.device.write32(control, 0)
    card.run(3_000, 500)
    sent = len(card.frames)
    card.run(100_000, 1_000)
    assert 0 < sent == len(card.frames) < 8
    card.device.write32(control, 1)
    card.run(100_000, 1_000)
    assert len(card.frames) == 8
    card.device.write32(control, 2)
    card.device.write32(control, 0)
    card.run(1_000, 500)
    assert card.card.pacer.used == 0


@CARDS
def test_a_larger_gap_counts_as_the_largest(device):
    waits = []
    for gap in (abi.PACE_GAP_MAX, (1 << abi.RATE_DOORBELL.by_name["gap"].width) - 1):
        card = PacedCard(device)
        card.set_gap(0, gap)
        card.work(0, 1)
        card.work(0, 1)
        card.run(2e6, 1e4)
        first, second = (end for end, *_ in card.frames)
        waits.append(second - first)
    assert waits[0] == waits[1] == pytest.approx((1 + OVERHEAD_BYTES) * (abi.PACE_GAP_MAX >> abi.PACE_SCALE), rel=0.005)


@CARDS
def test_without_a_pacer_paced_work_is_rejected(device):
    card = PacedCard(device, pool=0)
    card.pace(0, 1e6)
    card.work(0, PMTU)
    card.run(10_000, 500)
    assert [report.reason for report in card.reports] == [abi.Reason.BAD_DESCRIPTOR] and not card.frames


def test_both_cards_send_the_same():
    """Random paced and unpaced work, rates and limits. Each QP sends the same packets in the same order."""
    seed = drawn_seed()
    print("seed", seed)
    sent = []
    for device in (FunctionalDevice, TimedDevice):
        rng, card = random.Random(seed), PacedCard(device, 6, 128)
        limits = [0] * 6
        for qp in range(6):
            card.pace(qp, 10 ** rng.uniform(9, 11), 0)
        for _ in range(40):
            qp = rng.randrange(6)
            card.work(qp, rng.choice([0, 1, PMTU, rng.randrange(10 * PMTU)]))
            if rng.random() < 0.3:
                limits[qp] = rng.randrange(limits[qp], card.psns[qp] + 1)
                card.pace(qp, 10 ** rng.uniform(9, 11), limits[qp])
            if rng.random() < 0.3:
                card.run(rng.randrange(20_000), 500)
        card.run(400_000, 1_000)
        held = [[psn for _, of, psn, *_ in card.frames if of == qp] for qp in range(6)]
        assert held == [list(range(limit)) for limit in limits]
        for qp in range(6):
            card.pace(qp, 10e9)
        card.run(400_000, 1_000)
        sent.append([[frame[1:] for frame in card.frames if frame[1] == qp] for qp in range(6)])
        assert card.card.pacer.used == 0 and sum(held, [])
        assert [len([1 for report in card.reports if report.qpn == card.index(qp)]) for qp in range(6)]
    assert sent[0] == sent[1]
