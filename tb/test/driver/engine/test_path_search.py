"""Two hosts over two equal paths that a hash of the UDP source port chooses; one or both are cut."""

from types import SimpleNamespace

import pytest

from weft.driver.protocol.aeth import ASKS, PathQuery
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import wire
from weft.tb.verify.bench.cut_path import CARDS, DEPTH, PROBE_NS, TwoPaths, path_of


@pytest.mark.parametrize("directions", [(0,), (1,), (0, 1)], ids=("data", "answers", "both"))
@pytest.mark.parametrize("cards", CARDS)
def test_traffic_is_back_within_two_probe_timeouts_after_a_cut(cards, directions):
    results = []
    for seed in range(2):
        pair = TwoPaths(cards, seed, timeout=14)
        pair.write_until(lambda pair=pair: pair.pair.now_ns() > 3 * PROBE_NS)
        results.append(pair.cut_and_resume(directions))
        pair.write_until(lambda pair=pair: len(pair.completions_at) == pair.posted, keep_going=False)
        assert not pair.errors and pair.changes() == [1, 1]
        assert pair.arrived_intact
        pair.close()
    assert max(resumed for resumed, _ in results) <= 2 * PROBE_NS, results
    assert min(rate for _, rate in results) >= 0.85, results


@pytest.mark.parametrize("directions", [(0,), (1,)], ids=("data", "answers"))
def test_a_cut_within_a_write(directions):
    pair = TwoPaths("timed", 5, timeout=14)
    for n in (1, 2):
        pair.send(WROpcode.RDMA_WRITE, (0, pair.written), at=0, wr_id=n)
        pair.settle(20_000)
        if n == 2:
            pair.cut_paths(directions)
        assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    assert pair.arrived_intact and pair.changes() == [1, 1]
    assert pair.hosts[0].qp.sender.counts["path_probes"]
    pair.close()


@pytest.mark.parametrize("search", [True, False])
def test_without_a_path_the_request_fails(search):
    config = ContextConfig(probe_timeout_ns=PROBE_NS, ring_log2=8, path_search=search)
    pair = TwoPaths("functional", 1, config, timeout=6, retry_cnt=2)
    pair.write_until(lambda: len(pair.completions_at) > DEPTH)
    pair.cut[0].update({0, 1} if search else {path_of(0, pair.hosts[0].qp.engine.sport)})
    start = pair.pair.now_ns()
    pair.write_until(lambda: pair.errors)
    assert pair.pair.now_ns() - start < 6 * (4096 << 6)
    assert pair.changes() == [0, 0] and pair.errors[0] is WCStatus.RETRY_EXC_ERR
    pair.close()


def test_a_slow_peer_keeps_its_path():
    """Its program does not call the driver for longer than all quick probes take."""
    pair = TwoPaths("functional", 1, timeout=14)
    pair.write_until(lambda: len(pair.completions_at) > DEPTH)
    peer, progress = pair.hosts[1].context, pair.hosts[1].context.progress
    for _ in range(3):
        peer.progress = lambda: False
        pair.settle(20 * PROBE_NS)
        peer.progress = progress
        pair.write_until(lambda: len(pair.completions_at) == pair.posted, keep_going=False)
        pair.settle(PROBE_NS)
        pair.post()
    assert pair.changes() == [0, 0] and pair.hosts[0].qp.sender.counts["path_probes"]
    pair.close()


@pytest.mark.parametrize("delay_ns", [1_000_000, 15_000_000])
def test_a_long_path_is_kept(delay_ns):
    """The first answers arrive long after the probe time-out."""
    pair = TwoPaths("functional", 1, delay_ns=delay_ns)
    for _ in range(3):
        pair.post()
        pair.statuses(0, 1)
    assert pair.changes() == [0, 0]
    pair.close()


def test_only_answers_to_questions_change_the_port():
    """A peer may choose the port that it is sent to, within the range, and nothing else."""
    pair = TwoPaths("functional", 1)
    (host, peer), now = pair.hosts, pair.pair.now_ns()
    engine, first = host.qp.engine, host.qp.engine.sport

    def arrive(syndrome, **fields):
        engine.on_control(SimpleNamespace(opcode=wire.Opcode.ACKNOWLEDGE, src_ip=peer.context.ip, psn=0,
                                          syndrome=syndrome, **fields), now)

    for port in range(0xC000, 0xC100):
        arrive(PathQuery.ANSWER, sport=0xC001, msn=port)
    assert engine.sport == first
    for number in range(100):
        arrive(PathQuery.ASK, sport=number, msn=0)
    sent = host.context.counts["ACKNOWLEDGE"]
    pair.settle(10_000)
    assert host.context.counts["ACKNOWLEDGE"] == sent + ASKS, "questions of one round have a limit"
    arrive(PathQuery.TAKE, sport=5, msn=0xFF_1234)
    assert engine.sport == 0xD234 and pair.changes() == [1, 0]
    pair.post()
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    host.context.engine.config.path_search = False
    arrive(PathQuery.TAKE, sport=5, msn=0)
    assert engine.sport == 0xD234
    pair.close()
