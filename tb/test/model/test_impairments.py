"""Tests of a link's impairments without a simulator: loss, delay, duplicates, order and corruption."""

import pytest

from weft.hdl.contract import wire
from weft.model.impairments import FrameKind, Impairments, LinkConfig, frame_kind
from weft.model.loss import GilbertElliott

FRAMES = 4000


def roce(opcode, psn=0, payload=b""):
    extensions = b"".join(bytes(header.size_bytes) for header in wire.EXTENSIONS[opcode])
    return wire.build_frame(opcode=opcode, dst_mac=2, src_mac=1, src_ip=1, dst_ip=2, sport=0xC000, dest_qp=3, psn=psn,
                            payload=payload, extensions=extensions)


def data(psn):
    return roce(wire.Opcode.WRITE_ONLY, psn, bytes(16))


def cross(link, frames=FRAMES, gap_ns=100):
    """Return the deliveries of a train of data frames, in order of arrival."""
    return sorted(arrival for psn in range(frames) for arrival in link.outcome(data(psn), psn * gap_ns))


def outcomes(link, psns):
    """Return the outcomes of data frames, each 100 ns after the one before it."""
    return [link.outcome(data(psn), psn * 100) for psn in psns]


def psn_of(frame):
    return wire.BTH.unpack(frame[wire.BTH_OFFSET:]).psn


@pytest.mark.parametrize(("opcode", "kind"), [
    (wire.Opcode.WRITE_ONLY, FrameKind.DATA), (wire.Opcode.WRITE_ONLY_IMM, FrameKind.DATA),
    (wire.Opcode.RETX_WRITE, FrameKind.RETX), (wire.Opcode.RETX_WRITE_IMM, FrameKind.RETX),
    (wire.Opcode.LOSS_REPORT, FrameKind.LOSS_REPORT), (wire.Opcode.ACKNOWLEDGE, FrameKind.ACK),
    (wire.Opcode.PROBE, FrameKind.PROBE), (wire.Opcode.REPORT_REQUEST, FrameKind.OTHER)])
def test_kind_of_each_opcode(opcode, kind):
    assert frame_kind(roce(opcode)) is kind


def test_other_frames_are_classified_as_other():
    arp = wire.ETH.pack(dst=2, src=1, ethertype=wire.ETHERTYPE_ARP) + bytes(46)
    other_port = bytearray(data(0))
    other_port[37] ^= 1
    assert frame_kind(arp) is frame_kind(b"") is frame_kind(bytes(other_port)) is FrameKind.OTHER


def test_good_link_only_delays():
    link = Impairments(LinkConfig(delay_ns=500))
    assert cross(link, 50) == [(psn * 100 + 500, data(psn)) for psn in range(50)]


def test_slow_link_queues_frames():
    """Ten simultaneous frames leave one by one, at the link's rate; lost frames take no time on an idle link."""
    link = Impairments(LinkConfig(delay_ns=500, rate_gbps=8))
    wire_ns = len(data(0)) + 24
    assert [at for at, _ in cross(link, 10, gap_ns=0)] == pytest.approx([500 + n * wire_ns for n in range(1, 11)])
    assert link.outcome(data(10), 10_000)[0][0] == pytest.approx(10_500 + wire_ns)
    link.drop_when(lambda frame, kind: psn_of(frame) < 5)
    assert [at for at, _ in cross(link, 7, gap_ns=0)] == pytest.approx([10_500 + n * wire_ns for n in (2, 3)])


def test_loss_has_the_requested_rate_and_is_counted():
    link = Impairments(LinkConfig(loss=0.1), seed=1)
    arrived = cross(link)
    assert link.counters.lost[FrameKind.DATA] == FRAMES - len(arrived)
    assert 0.08 < link.counters.lost[FrameKind.DATA] / FRAMES < 0.12
    assert link.counters.as_dict()["sent"] == {"data": FRAMES, "all": FRAMES}


def test_same_seed_gives_the_same_outcome():
    config = LinkConfig(loss=0.05, duplicate=0.05, reorder=0.1, corrupt=0.05)
    assert cross(Impairments(config, seed=7)) == cross(Impairments(config, seed=7))
    assert cross(Impairments(config, seed=7)) != cross(Impairments(config, seed=8))


def test_loss_does_not_depend_on_other_settings():
    def lost(**settings):
        link = Impairments(LinkConfig(loss=0.05, **settings), seed=3)
        return set(range(FRAMES)) - {psn_of(frame) for _, frame in cross(link)}
    assert lost() == lost(duplicate=0.2, reorder=0.3)


@pytest.mark.parametrize("change", [
    {"loss": 0.3}, {"control_loss": 1.0, "corrupt": 0.3}, {"duplicate": 0.3}, {"reorder": 0.3}, {"corrupt": 0.3},
    {"reorder": 0.3, "reorder_distance": 3}, {"rate_gbps": 1.0}, {"jitter_ns": 200.0},
    {"loss_model": GilbertElliott(3, 0.3)}])
def test_impairments_begin_and_end_at_run_time(change):
    link, plain = Impairments(LinkConfig()), Impairments(LinkConfig())
    assert outcomes(link, range(50)) == outcomes(plain, range(50))
    link.config = LinkConfig(**change)
    assert outcomes(link, range(50)) != outcomes(plain, range(50))
    link.config = LinkConfig()
    outcomes(link, range(3))      # releases frames that were held back
    assert outcomes(link, range(50)) == outcomes(plain, range(50))


def test_frames_without_impairments_draw_like_all_others():
    always, later = Impairments(LinkConfig(loss=0.3)), Impairments(LinkConfig())
    outcomes(later, range(100))
    later.config = LinkConfig(loss=0.3)
    assert outcomes(always, range(400))[100:] == outcomes(later, range(100, 400))


def test_reordered_frames_are_late_by_at_most_the_bound():
    link = Impairments(LinkConfig(delay_ns=0, reorder=0.2, reorder_max_ns=300), seed=2)
    arrived = cross(link)
    lateness = [at - psn_of(frame) * 100 for at, frame in arrived]
    assert 0 <= min(lateness) and 200 < max(lateness) <= 300
    assert sum(late > 0 for late in lateness) == link.counters.reordered.total() > FRAMES // 10
    order = [psn_of(frame) for _, frame in arrived]
    assert order != sorted(order) and sorted(order) == list(range(FRAMES))


def test_a_frame_is_overtaken_by_no_more_frames_than_the_distance():
    """It arrives after as many frames as the distance, or at its maximum delay, and once."""
    link = Impairments(LinkConfig(delay_ns=10, reorder=0.2, duplicate=0.1, reorder_distance=3, reorder_max_ns=50_000))
    order, waiting = [], []
    for psn in range(FRAMES):
        for at, arriving in link.outcome(data(psn), 100 * psn):
            if at > 100 * psn + 10:
                waiting.append((at, arriving))
            else:
                order.append(psn_of(arriving))
    assert waiting and all(50_010 <= at for at, _ in waiting)
    behind = [max(order[:k]) - psn for k, psn in enumerate(order) if k and max(order[:k]) > psn]
    assert set(behind) == {1, 2, 3}
    left = [psn_of(frame) for frame in (link.released(arriving) for _, arriving in waiting) if frame is not None]
    assert len(left) <= 3 and set(order + left) == set(range(FRAMES))
    assert len(order + left) == FRAMES + link.counters.duplicated.total()


def test_duplicates_arrive_twice_later():
    link = Impairments(LinkConfig(delay_ns=0, duplicate=0.1), seed=4)
    times = {}
    for at, frame in cross(link):
        times.setdefault(psn_of(frame), []).append(at)
    doubled = [at for at in times.values() if len(at) == 2]
    assert len(doubled) == link.counters.duplicated.total() > FRAMES // 20
    assert all(0 < second - first <= 1000 for first, second in doubled)


def test_corruption_flips_one_bit_anywhere():
    link = Impairments(LinkConfig(corrupt=1.0), seed=5)
    flipped = set()
    for psn in range(FRAMES):
        [(_, frame)] = link.outcome(data(psn), 0)
        difference = int.from_bytes(frame, "little") ^ int.from_bytes(data(psn), "little")
        assert difference.bit_count() == 1
        flipped.add((difference.bit_length() - 1) // 8)
    assert flipped == set(range(len(data(0))))


def test_control_frames_can_be_exempt():
    ack = roce(wire.Opcode.ACKNOWLEDGE)
    assert Impairments(LinkConfig(loss=1.0)).outcome(ack, 0) == []
    spared = Impairments(LinkConfig(loss=1.0, corrupt=1.0, control_loss=0.0, delay_ns=5))
    assert spared.outcome(ack, 0) == [(5, ack)] and spared.outcome(data(0), 0) == []


def test_directed_drop_until_it_ends():
    link = Impairments(LinkConfig(delay_ns=0))
    end = link.drop_when(lambda frame, kind: kind is FrameKind.DATA and psn_of(frame) == 3)
    assert [psn_of(frame) for _, frame in cross(link, 5)] == [0, 1, 2, 4]
    end()
    assert len(cross(link, 5)) == 5
    assert link.counters.lost == {FrameKind.DATA: 1}


@pytest.mark.parametrize("bad", [{"loss": 1.5}, {"corrupt": -0.1}, {"delay_ns": -1}, {"rate_gbps": 0},
                                 {"reorder_max_ns": 0}, {"reorder_distance": 0}, {"control_loss": 2}])
def test_bad_settings_are_rejected(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        LinkConfig(**bad)
