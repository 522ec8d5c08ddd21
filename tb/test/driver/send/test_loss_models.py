"""Bursts, outages and combs between two functional cards: every loss is repaired once, without a time-out."""

import random

import pytest

from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import wire
from weft.model.impairments import FrameKind
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop
from weft.model.loss import GilbertElliott
from weft.tb.sim.pair.functional_pair import close_and_check, lost_data, make_endpoints, make_pair, transfer
from weft.tb.test.loss_models import Burst, Comb, Outage
from weft.tb.test.tail import Tail

QPS, PMTU_BYTES = 2, 256
MODELS = {
    "burst 8": GilbertElliott(8, 0.01),
    "burst 64": GilbertElliott(64, 0.05),
    "burst 512": GilbertElliott(512, 0.2),
    "one burst": Burst(200, 512),
    "outage": Outage(20_000, 30_000),
    "outages": Outage(10_000, 4_000, 60_000),
    "comb 384": Comb(384, 100),
    "comb 7": Comb(7),
    "independent": None,
}


def watched(pair):
    """Return a :class:`Tail` of the frames that A sends."""
    tail, there, back = Tail(), *pair.links

    def send(frame):
        before = there.counters.lost.total()
        there.send(frame)
        tail.sent(frame, there.counters.lost.total() > before)

    def answer(frame):
        tail.answered(frame)
        back.send(frame)

    pair.devices[0].transmit, pair.devices[1].transmit = send, answer
    return tail


def run(model, seed, *, length=800_000, loss=0.0):
    """Run one transfer; return (pair, endpoints, statistics of the sender, bytes equal, Tail)."""
    config = LinkConfig(delay_ns=10_000, loss=loss, loss_model=model, control_loss=0.0)
    pair = make_pair(ContextConfig(probe_timeout_ns=100_000), forward=config, backward=LinkConfig(delay_ns=10_000),
                     seed=seed)
    ends = make_endpoints(pair, length, qps=QPS, path_mtu=MTU.MTU_256, window=32)
    data = random.Random(seed).randbytes(length)
    ends[0].mr.write(data)
    tail = watched(pair)
    sent, _ = transfer(pair, ends)
    return pair, ends, sent, ends[1].mr.read(length, 0) == data, tail


@pytest.mark.parametrize("name", MODELS)
def test_each_loss_is_recovered_once_without_a_timer(name):
    losses = again = 0
    for seed, length in enumerate((800_000, 3_000_000)):
        pair, ends, sent, equal, tail = run(
            MODELS[name], seed, length=length, loss=0.03 if MODELS[name] is None else 0.0)
        assert equal
        link, card = pair.links[0], pair.devices[1].card
        losses += lost_data(link)
        again += sent.get("sender_retransmissions", 0)
        assert not sent.get("sender_probes_midway"), "a timer ran out in the middle"
        found = sum(n for *_, n in card.found_by_probe)
        assert found <= tail.packets, f"{found} packets waited for a probe, {tail.packets} were at a tail"
        close_and_check(pair, ends)
    assert losses and again == losses, "spurious retransmissions"


@pytest.mark.parametrize("times", [2, 3, 5])
def test_repeated_loss_of_the_same_packets(times):
    """Every seventh packet and its first retransmissions are lost; only lost packets are sent again."""
    pair = make_pair(ContextConfig(probe_timeout_ns=100_000), forward=LinkConfig(delay_ns=10_000))
    ends = make_endpoints(pair, 600_000, path_mtu=MTU.MTU_256, window=32)
    data = random.Random(times).randbytes(600_000)
    ends[0].mr.write(data)
    seen = {}

    def drop(frame):
        if frame[wire.BTH_OFFSET] not in wire.DATA_OPCODES:
            return False
        psn = wire.BTH.unpack(frame[wire.BTH_OFFSET:]).psn
        seen[psn] = seen.get(psn, 0) + 1
        return psn % 7 == 0 and seen[psn] <= times

    pair.links[0].drop = drop
    sent, received = transfer(pair, ends)
    assert ends[1].mr.read(600_000, 0) == data
    assert max(seen.values()) == times + 1
    assert sent["sender_retransmissions"] == lost_data(pair.links[0]) == times * sum(psn % 7 == 0 for psn in seen)
    assert received["receiver_residue"] >= (times - 1) * sum(psn % 7 == 0 for psn in seen)
    assert not sent.get("sender_probes_midway")
    close_and_check(pair, ends)


# --------------------------------------------------------------------------------------------- the models


def pattern(model, frames, step_ns=100):
    lost = model.start(random.Random(5))
    return [lost(step_ns * i) for i in range(frames)]


@pytest.mark.parametrize(("burst", "loss"), [(8, 0.01), (64, 0.01), (512, 0.05)])
def test_bursts_have_the_requested_length_and_share(burst, loss):
    lost = pattern(GilbertElliott(burst, loss), 2_000_000)
    share = sum(lost) / len(lost)
    bursts = sum(b and not a for a, b in zip(lost, lost[1:], strict=False))
    assert share == pytest.approx(loss, rel=0.25)
    assert sum(lost) / bursts == pytest.approx(burst, rel=0.25)


def test_outage_comb_and_single_burst():
    assert pattern(Outage(300, 200), 8) == [i in (3, 4) for i in range(8)]
    assert pattern(Outage(100, 100, 300), 8) == [i in (1, 4, 7) for i in range(8)]
    assert pattern(Comb(3, 1), 8) == [i in (1, 4, 7) for i in range(8)]
    assert pattern(Burst(2, 3), 8) == [i in (2, 3, 4) for i in range(8)]


def test_a_model_loses_control_frames_only_if_these_are_treated_alike():
    frame = wire.build_frame(opcode=wire.Opcode.PROBE, dst_mac=1, src_mac=2, src_ip=3, dst_ip=4, sport=5, dest_qp=6,
                             psn=7, extensions=bytes(4))
    for control_loss, lost in ((None, 1), (0.0, 0)):
        link = Link(EventLoop(), lambda _: None, LinkConfig(loss_model=Comb(1), control_loss=control_loss))
        link.send(frame)
        assert link.counters.lost[FrameKind.PROBE] == lost
