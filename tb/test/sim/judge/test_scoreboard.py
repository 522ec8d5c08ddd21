"""Tests of the scoreboard: a correct card passes, and each error of a card is detected."""

from collections import Counter
from types import SimpleNamespace

import pytest

from weft.hdl.contract import abi, wire
from weft.hdl.contract.abi import Encoding, ReportKind
from weft.hdl.contract.wire import Opcode
from weft.model.functional.node import Node
from weft.tb.sim.judge.scoreboard import Scoreboard

MAC, IP, QPN, GENERATION, FIRST = 0x02_00_00_00_00_0B, 0x0A_00_00_02, 3, 1, (1 << 24) - 3
NUMBER = abi.make_qpn(QPN, GENERATION, 4)
RING, RING_DEPTH, BLOCK = 0x10000, 4, 0x20000


class Card:
    """Stands in for card, host and link: packets in, reports out."""

    def __init__(self):
        self.memory = SimpleNamespace(dma_taps=[], read=lambda address, length: self.blocks[address])
        self.blocks, self.entries, self.counters = {}, 0, Counter()
        ring = SimpleNamespace(buffer=SimpleNamespace(physical=lambda at: RING + at), depth=RING_DEPTH)
        context = SimpleNamespace(mac=MAC, ip=IP, config=SimpleNamespace(reorder_distance=1),
                                  rings={abi.Ring.META_REPORT: ring})
        link = SimpleNamespace(arrival_watchers=[])
        self.board = Scoreboard(context, SimpleNamespace(memory=self.memory), link, window_bits=128)
        self.board.follow(SimpleNamespace(qp_num=NUMBER, index=QPN, generation=GENERATION,
                                          attr=SimpleNamespace(rq_psn=FIRST)))
        self._arrive = link.arrival_watchers[0]

    def packet(self, number, *, rsn=None, ack_req=0):
        """Receive packet ``number``: an original, or with ``rsn`` a retransmission."""
        opcode = Opcode.WRITE_ONLY if rsn is None else Opcode.RETX_WRITE
        extensions = wire.RETH.pack(va=0, rkey=0, dma_length=4)
        if rsn is not None:
            extensions += wire.RSNH.pack(rsn=rsn)
        self.frame(wire.build_frame(opcode=opcode, dst_mac=MAC, src_mac=1, src_ip=1, dst_ip=IP, sport=0xC000,
                                    dest_qp=NUMBER, psn=FIRST + number, ack_req=ack_req, payload=b"data",
                                    extensions=extensions))
        if rsn is None:
            self.counters["rx_packets"] += 1

    def frame(self, frame):
        self._arrive(frame)

    def report(self, entry, phase=None):
        slot, lap = self.entries % RING_DEPTH, self.entries // RING_DEPTH
        phase = 1 - lap % 2 if phase is None else phase
        data = bytes([entry[0] & ~1 | phase]) + entry[1:]
        self.entries += 1
        self.counters["reports"] += 1
        for tap in self.memory.dma_taps:
            tap(RING + slot * abi.BLOCK_BYTES, data)

    @staticmethod
    def node(*numbers, rsn=0):
        holes = tuple(number - numbers[0] for number in numbers)
        return Node(QPN, GENERATION, FIRST + numbers[0], rsn, Encoding.LIST, holes)

    def lost(self, *numbers):
        """Report a node."""
        self.counters["nodes_sealed"] += 1
        body = int.from_bytes(self.node(*numbers).pack()[8:], "little")
        self.report(abi.REPORT_NODE.pack(kind=ReportKind.NODE, node=body))

    def retire(self, *numbers, rsn=0, left=0):
        """Report a retired node; the block holds the node."""
        self.counters["nodes_retired"] += 1
        self.blocks[BLOCK] = self.node(*numbers, rsn=rsn).pack()
        self.report(abi.REPORT_RETIRE.pack(
            kind=ReportKind.RETIRE, line=BLOCK // abi.BLOCK_BYTES, qpn=QPN, generation=GENERATION, rsn=rsn,
            next_rsn=rsn + len(numbers), residue=left.bit_count(), open=left))

    def event(self, kind, number, base, holes, retransmission=0):
        self.report(abi.REPORT_EVENT.pack(kind=kind, qpn=QPN, generation=GENERATION, psn=FIRST + number,
                                          base=FIRST + base, holes=holes, retransmission=retransmission))

    def check(self, base, holes, wrong_counter=None, spans=0):
        values = Counter(self.counters, holes=holes)
        values[wrong_counter] += 3
        self.board.check(values, {NUMBER: (FIRST + base, holes)}, spans)


def right(card):
    """Play a correct card: two of six packets are lost, one of them twice; the report ring and the PSNs wrap."""
    for number in (0, 2, 3, 5):
        card.packet(number, ack_req=number == 5)
    card.event(ReportKind.MESSAGE_END, 5, 6, 2)
    card.lost(1, 4)
    card.packet(4, rsn=1)
    card.retire(1, 4, left=1)
    card.packet(1, rsn=2)
    card.retire(1, rsn=2)
    card.packet(6, ack_req=1)
    card.event(ReportKind.MESSAGE_END, 6, 7, 2)
    card.counters["rx_packets"] += 2
    card.counters["rx_retransmissions"] += 2
    return card


def test_correct_run_passes():
    card = right(Card())
    card.check(7, 2)
    card.board.require("loss", "second loss", "psn wrap", "report ring wrap")
    with pytest.raises(AssertionError, match="never happened: duplicate"):
        card.board.require("duplicate")


def test_packets_in_a_span_are_repeated_to_the_driver_limit():
    card = Card()
    for number in (0, 2, 3, 5):
        card.packet(number)
    card.lost(1, 4)
    for rsn, number in enumerate((1, 2, 3, 4)):
        card.packet(number, rsn=rsn)
    card.retire(1, 2, 3, 4)
    card.counters["rx_packets"] += 4
    card.counters["rx_retransmissions"] += 4
    card.check(6, 2, spans=2)
    card.board.require("span")
    with pytest.raises(AssertionError, match="2 PSNs were requested although they arrived, 1 are in spans"):
        card.check(6, 2, spans=1)


def test_retired_nodes_cost_no_work():
    card, nodes = Card(), 50
    for n in range(nodes):
        card.packet(3 * n)
        card.packet(3 * n + 2)
        card.lost(3 * n + 1)
        card.packet(3 * n + 1, rsn=n)
        card.retire(3 * n + 1, rsn=n)
    incarnation = card.board._incarnations[QPN]
    assert card.board.seen["RETIRE"] == nodes and len(incarnation.filled) == nodes and not incarnation.retransmissions


def test_copies_late_packets_and_damage_are_distinguished():
    card = Card()
    for number in (0, 1, 1, 3, 2):
        card.packet(number)
    assert card.board.exercised >= {"duplicate", "loss", "late original"} and "corruption" not in card.board.exercised
    card.packet(4)
    frame = wire.build_frame(opcode=Opcode.WRITE_ONLY, dst_mac=MAC, src_mac=1, src_ip=1, dst_ip=IP, sport=1,
                             dest_qp=NUMBER, psn=FIRST, extensions=wire.RETH.pack(dma_length=0))
    card.frame(frame[:-1] + bytes([frame[-1] ^ 1]))
    assert "corruption" in card.board.exercised


def test_hole_matched_by_the_driver_is_filled():
    card = Card()
    for number in (0, 2):
        card.packet(number)
    card.lost(1)
    card.packet(1, rsn=0)
    card.event(ReportKind.UNMATCHED, 1, 3, 1, retransmission=1)
    card.retire(1, left=1)
    card.counters["rx_packets"] += 1
    card.counters.update(rx_retransmissions=1, rx_unmatched=1)
    card.check(3, 1)
    assert "second loss" not in card.board.exercised


def test_uncounted_packet_is_detected():
    card = Card()
    card.packet(1)
    card.lost(0)
    card.packet(0, rsn=0)
    card.retire(0, left=1)
    card.packet(0, rsn=1)
    card.retire(0, rsn=1)
    with pytest.raises(AssertionError, match="arrived in time and was not counted"):
        card.check(2, 1)


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda c: c.lost(2), "reported lost, but nothing is"),
    (lambda c: (c.packet(0), c.packet(3), c.lost(2)), "not 0xfffffe"),
    (lambda c: (c.packet(1), c.lost(0), c.lost(0)), "nothing is"),
    (lambda c: (c.packet(1), c.lost(0), c.retire(0)), "nothing came"),
    (lambda c: (c.packet(1), c.lost(0), c.packet(0, rsn=5), c.retire(0)), "nothing came"),
    (lambda c: (c.packet(1), c.lost(0), c.packet(0, rsn=4), c.retire(0, rsn=4)), "0 is the list's head"),
    (lambda c: (c.packet(1), c.lost(0), c.packet(0, rsn=0, ack_req=1), c.retire(0)), "before its MESSAGE_END"),
    (lambda c: (c.packet(1, ack_req=1), c.event(ReportKind.MESSAGE_END, 1, 1, 0)), "not .*MESSAGE_END"),
    (lambda c: c.event(ReportKind.PROGRESS, 0, 0, 0), "nothing was due"),
    (lambda c: (c.packet(1), c.lost(0), c.event(ReportKind.UNMATCHED, 0, 1, 1)), "never came"),
    (lambda c: c.report(abi.REPORT_EVENT.pack(kind=ReportKind.PROBE, qpn=QPN, generation=GENERATION), phase=0),
     "wrong phase"),
    (lambda c: c.report(abi.REPORT_EVENT.pack(kind=ReportKind.PROBE, qpn=QPN, generation=GENERATION + 1)),
     "unknown QP"),
])
def test_wrong_report_is_detected(wrong, words):
    card = Card()
    wrong(card)
    with pytest.raises(AssertionError, match=words):
        card.check(0, 0)


def test_missing_events_at_the_end_are_detected():
    card = Card()
    card.packet(1)
    with pytest.raises(AssertionError, match="1 lost PSNs never reported"):
        card.check(2, 1)
    card.lost(0)
    with pytest.raises(AssertionError, match="1 holes never filled"):
        card.check(2, 1)
    card = Card()
    card.packet(0, ack_req=1)
    with pytest.raises(AssertionError, match="never came"):
        card.check(1, 0)


def test_missing_retransmission_is_detected():
    card = Card()
    card.packet(2)
    card.lost(0, 1)
    card.packet(0, rsn=0)
    card.packet(1, rsn=1)
    card.retire(0, 1, left=1)
    card.packet(0, rsn=2)
    card.retire(0, rsn=2)
    with pytest.raises(AssertionError, match="arrived in time and was not counted"):
        card.check(3, 2)


@pytest.mark.parametrize("name", ["holes", "nodes_sealed", "reports", "drop_bad_key", "drop_bad_icrc", "rx_packets"])
def test_wrong_counter_is_detected(name):
    card = right(Card())
    with pytest.raises(AssertionError, match="originals" if name == "rx_packets" else name):
        card.check(7, 2, wrong_counter=name)


def test_wrong_window_is_detected():
    card = right(Card())
    with pytest.raises(AssertionError, match="base and holes"):
        card.check(6, 2)
