"""Limit of outstanding PSNs: no sender exceeds it, and the card of the peer drops packets beyond it."""

import pytest

from weft.driver.verbs.qp import QPAttr
from weft.hdl.contract import wire
from weft.model.functional.host import LinkConfig
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair, transfer

Opcode = wire.Opcode
PSNS = 1 << wire.PSN_BITS


def receive(pair, qp, opcode, ahead):
    """Receive a packet of the peer without payload, ``ahead`` PSNs after the oldest expected one.

    Return (changed counters, base of the window).
    """
    context, card = pair.contexts[1], pair.devices[1].card
    extensions = {Opcode.PROBE: wire.RSNH.pack(),
                  Opcode.WRITE_ONLY: wire.RETH.pack()}[opcode]
    incarnation = card.qps[qp.index]
    before = card.counters.copy()
    card.receive(wire.build_frame(
        opcode=opcode, dst_mac=context.mac, src_mac=2, src_ip=qp.engine.path.ip, dst_ip=context.ip, sport=0xC000,
        dest_qp=qp.qp_num, psn=(incarnation.window.base + ahead) % PSNS, extensions=extensions))
    return {name for name, value in card.counters.items() if value != before[name]}, incarnation.window.base


@pytest.mark.parametrize("log2", [1, 4, 10])
@pytest.mark.parametrize("opcode", [Opcode.WRITE_ONLY, Opcode.PROBE])
def test_packet_beyond_the_bound_moves_nothing(opcode, log2):
    pair = make_pair()
    ends = make_endpoints(pair, 4096, outstanding_log2=log2)
    qp = ends[1].qps[0]
    base = qp.attr.rq_psn
    for ahead in (1 << log2, (1 << log2) + 1, 1 << 20, PSNS // 2 - 1):
        assert receive(pair, qp, opcode, ahead) == ({"rx_frames", "drop_far_psn"}, base)
    changed, now = receive(pair, qp, opcode, (1 << log2) - 1)
    assert "drop_far_psn" not in changed and "holes" in changed
    assert now == base + (1 << log2) - (opcode is Opcode.PROBE)
    close_and_check(pair, ends)


@pytest.mark.parametrize("log2", [1, 3, 6])
def test_senders_respect_the_bound_of_their_peers(log2):
    """Data, retransmissions and reports are lost."""
    pair = make_pair(forward=LinkConfig(loss=0.05), backward=LinkConfig(loss=0.05), seed=log2)
    ends = make_endpoints(pair, 60_000, path_mtu=1, outstanding_log2=log2)
    data = bytes(range(250)) * 240
    ends[0].mr.write(data)
    most = []
    queue = ends[0].qps[0].sender.queue
    take = queue.next

    def watched(entries, most_bytes):
        taken = take(entries, most_bytes)
        most.append(queue.sent_psn - queue.una)
        return taken

    queue.next = watched
    transfer(pair, ends, message_bytes=20_000)
    assert ends[1].mr.read(len(data), 0) == data
    assert max(most) == (1 << log2) - 1, "the bound was never reached"
    assert not pair.devices[1].card.counters["drop_far_psn"]
    close_and_check(pair, ends)


def test_both_ends_use_the_same_default_bound():
    assert QPAttr().outstanding_log2 == wire.PSN_OUTSTANDING_DEFAULT_LOG2
    pair = make_pair()
    ends = make_endpoints(pair, 4096)
    for end, device in zip(ends, pair.devices, strict=True):
        (entry,) = device.card.tables.qps.values()
        assert 1 << wire.PSN_OUTSTANDING_LOG2 - entry.psn_guard == end.qps[0].sender.queue.max_outstanding + 1
    close_and_check(pair, ends)


@pytest.mark.parametrize("log2", [0, 24, -1])
def test_impossible_bound_is_rejected(log2):
    pair = make_pair()
    with pytest.raises(ValueError, match="outstanding_log2"):
        make_endpoints(pair, 4096, outstanding_log2=log2)
