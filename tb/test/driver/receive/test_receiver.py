"""Receiver on a knitting buffer, without card and link."""

import random
from types import SimpleNamespace

import pytest

from weft.driver.knitting.buffer import KnittingBuffer
from weft.driver.knitting.holes import encode, node_runs
from weft.driver.protocol.control import ControlFrame
from weft.driver.receive.hole_list import LinkDoorbell
from weft.driver.receive.receiver import CumDoorbell, Receiver
from weft.hdl.contract import abi, wire
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop

PSN = (1 << 24) - 3


def known(_index, _address, _length, done):
    """Announce an extent as a card that accepts it at once."""
    done()


def make_receiver(blocks=64):
    device = FunctionalDevice(EventLoop())
    pool = KnittingBuffer(device, known, extent_bytes=blocks * 64)
    return Receiver(qpn=5, generation=9, psn=PSN, pool=pool), pool


def node(receiver, *runs):
    ((_, fields),) = encode(list(runs))
    receiver.on_node(SimpleNamespace(**fields))


def event(receiver, kind, psn, base, holes, *, imm=None, rsn=0):
    receiver.on_report(
        kind,
        SimpleNamespace(
            kind=kind,
            psn=psn % (1 << 32),
            base=base % (1 << 32),
            holes=holes,
            has_imm=imm is not None,
            imm=imm,
            length=1,
            va=0,
            rsn=rsn,
            reason=abi.Reason.OK,
        ),
    )


def actions(receiver):
    result = list(receiver.actions)
    receiver.actions.clear()
    return result


def retire(receiver, line, open_bits=0):
    receiver.on_retire(SimpleNamespace(line=line, residue=open_bits.bit_count(), open=open_bits))


def test_node_is_linked_before_it_is_reported():
    receiver, pool = make_receiver()
    node(receiver, (PSN + 2, 3))
    link, report = actions(receiver)
    head = receiver.holes.nodes[0].line
    assert link == LinkDoorbell(1, pool.extents.number(head))
    assert report.opcode is wire.Opcode.LOSS_REPORT and report.rsn == 0
    assert pool.extents.read(head) == report.payload
    fields = abi.NODE.unpack(report.payload)
    assert (fields.qpn, fields.generation, fields.count, fields.rsn) == (5, 9, 3, 0)
    assert pool.check() == {"free": 63, "linked": 1} and not fields.next_line
    node(receiver, (PSN + 9, 1))
    assert actions(receiver)[1].rsn == 3
    pointer = abi.NODE.unpack(pool.extents.read(head))
    assert pointer.next_adjacent and pointer.next_line == head + 1
    assert abi.NODE.unpack(pool.extents.read(head + 1)).rsn == 3


def test_message_waits_for_its_holes_and_for_their_node():
    receiver, _ = make_receiver()
    event(receiver, abi.ReportKind.MESSAGE_END, PSN + 9, PSN + 10, 2)
    receiver.settle()
    assert not receiver.messages and receiver.cum == PSN  # the node of the two holes has not arrived
    node(receiver, (PSN + 4, 2))
    receiver.settle()
    assert not receiver.messages and receiver.cum == PSN + 4
    actions(receiver)
    retire(receiver, receiver.holes.nodes[0].line)
    receiver.settle()
    assert receiver.take_message().psn == PSN + 9 and receiver.cum == PSN + 10
    receiver.completed()
    receiver.acknowledge()
    doorbell, frame = actions(receiver)
    assert isinstance(doorbell, CumDoorbell) and doorbell.psn == PSN + 10
    assert (frame.opcode, frame.psn, frame.syndrome, frame.msn) == (
        wire.Opcode.ACKNOWLEDGE,
        PSN + 9,
        wire.Syndrome.ACK,
        1,
    )


def test_residue_is_appended_with_new_rsns():
    receiver, pool = make_receiver()
    node(receiver, (PSN, 3), (PSN + 5, 1))
    node(receiver, (PSN + 20, 2))
    actions(receiver)
    retire(receiver, receiver.holes.nodes[0].line, open_bits=0b1010)
    link, report = actions(receiver)
    assert link.nodes == 1 and report.rsn == 6
    assert node_runs(abi.NODE.unpack(report.payload), PSN) == [(PSN + 1, 1), (PSN + 5, 1)]
    assert pool.check()["linked"] == 2


def test_hole_matched_by_the_driver_is_not_requested_again():
    """A hole does not count as filled if its RSN and PSN do not belong together, or if its node is gone."""
    receiver, _ = make_receiver()
    node(receiver, (PSN + 2, 2), (PSN + 9, 2))
    head = receiver.holes.nodes[0].line
    node(receiver, (PSN + 20, 1))
    actions(receiver)
    for psn, rsn in ((PSN + 3, 1), (PSN + 9, 2), (PSN + 10, 2), (PSN + 11, 4), (PSN + 20, 5), (PSN + 2, 1 << 23)):
        receiver.on_unmatched(SimpleNamespace(psn=psn % (1 << 32), rsn=rsn % (1 << 24)))
    retire(receiver, head, 0b1111)
    assert receiver.counts["unmatched"] == 2
    _, again = actions(receiver)
    assert [psn for psn, _ in receiver.holes.nodes[-1].runs] == [PSN + 2, PSN + 10] and again.rsn == 5
    retire(receiver, head + 1, 0b1)
    retire(receiver, head + 2)
    event(receiver, abi.ReportKind.PROGRESS, PSN + 30, PSN + 30, 5)
    receiver.settle()
    assert receiver.cum == PSN + 20     # the hole at RSN 4 was left open, and nothing arrived for it


def test_message_end_is_counted_once():
    receiver, _ = make_receiver()
    for _ in range(2):
        event(receiver, abi.ReportKind.MESSAGE_END, PSN, PSN + 1, 0, imm=3)
        receiver.settle()
    assert [m.end.imm for m in receiver.messages] == [3]


def test_probe_is_answered_with_the_state_and_the_unknown_reports():
    receiver, _ = make_receiver()
    node(receiver, (PSN, 2))
    node(receiver, (PSN + 5, 1))
    actions(receiver)
    event(receiver, abi.ReportKind.PROBE, PSN + 8, PSN + 8, 3, rsn=2)
    receiver.settle()
    receiver.acknowledge()
    frames = [a for a in actions(receiver) if isinstance(a, ControlFrame)]
    assert [(f.opcode, f.rsn) for f in frames] == [(wire.Opcode.LOSS_REPORT, 2), (wire.Opcode.ACKNOWLEDGE, 0)]
    assert frames[1].psn == PSN - 1


def test_lost_report_is_repeated_byte_for_byte():
    receiver, _ = make_receiver()
    node(receiver, (PSN, 2))
    first = actions(receiver)[1]
    receiver.on_report_request(0)
    assert [a.payload for a in actions(receiver)] == [first.payload]


def test_wrong_retirement_is_detected():
    receiver, _ = make_receiver()
    node(receiver, (PSN, 2))
    node(receiver, (PSN + 4, 2))
    with pytest.raises(RuntimeError, match="head"):
        retire(receiver, receiver.holes.nodes[1].line)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_conserved_and_no_qp_starves(seed):
    rng = random.Random(seed)
    device = FunctionalDevice(EventLoop())
    pool = KnittingBuffer(device, known, extent_bytes=6 * 64)
    receivers = [Receiver(qpn=n, generation=1, psn=0, pool=pool) for n in range(5)]
    receivers += [Receiver(qpn=5, generation=1, psn=0, pool=pool)]
    with pytest.raises(MemoryError):
        Receiver(qpn=6, generation=1, psn=0, pool=pool)
    at = 0
    for _ in range(400):
        r = rng.choice(receivers)
        if rng.random() < 0.6:
            at += 10
            node(r, (at, rng.randint(1, 5)))
        elif r.holes.nodes:
            head = r.holes.nodes[0]
            retire(r, head.line, rng.choice([0, 1]))
            for other in receivers:
                other.link_waiting()
        lists = [r.holes for r in receivers]
        assert all(x.nodes or not x.waits_for_blocks for x in lists), "a QP waits that has nothing to wait for"
        pool.check()
    for r in receivers:
        r.close()
    assert pool.check() == {"free": 6, "linked": 0}
