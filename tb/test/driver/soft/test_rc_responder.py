"""Responder of the RoCEv2 endpoint: rejected requests and their NAKs, and duplicates, which are not executed again."""

import pytest

from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.opcodes import RcOpcode as O
from weft.driver.soft.rc.packet import Addresses, RcPacket, build
from weft.driver.soft.rc.qp import CNP_INTERVAL_NS
from weft.driver.terms.enums import MTU, AccessFlag, QPState, WCStatus
from weft.driver.verbs.pd import PD
from weft.hdl.contract.wire import Syndrome
from weft.model.fabric.frame.header import marked
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.rc_pair import IPS, RcPair, all_good, statuses

INVALID, ACCESS, OPERATIONAL = (Syndrome.NAK_INVALID_REQUEST, Syndrome.NAK_REMOTE_ACCESS,
                                Syndrome.NAK_REMOTE_OPERATIONAL)


class Peer:
    """Host 0, played by the test; host 1 is real and has a PMTU of 256."""

    def __init__(self, **attributes):
        self.pair = RcPair(path_mtu=MTU.MTU_256, psns=(100, 200), **attributes)
        self.qp, self.mr, self.psn = self.pair.qp[1], self.pair.mr[1], 100
        self.counts = self.pair.ends[1].counts
        self._seen = 0

    def send(self, opcode, payload=b"", *, psn=None, ack_req=1, to=0, **fields):
        """Send a packet, by default with the next PSN; return the responses of host 1."""
        fields = {"va": self.mr.buf + to, "rkey": self.mr.rkey, "dma_length": len(payload)} | fields
        at = self.psn if psn is None else psn
        if psn is None:
            self.psn += max(1, -(-fields["dma_length"] // 256)) if opcode is O.READ_REQUEST else 1
        self.pair.inject(1, RcPacket(opcode, self.qp.qp_num, at % (1 << 24), ack_req, payload, **fields))
        return self.answers()

    def answers(self):
        frames = [frame for host, frame in self.pair.frames if host == 1]
        new, self._seen = frames[self._seen:], len(frames)
        return [self.pair.packet_of(frame, 1) for frame in new]

    def naks(self, syndrome):
        """Return true if the last packet was rejected with this NAK and ended the connection."""
        return self.qp.qp_state is QPState.ERR and self.counts[f"refused_{syndrome.name.lower()}"] == 1


def syndromes(packets):
    return [(packet.opcode, packet.psn, packet.syndrome) for packet in packets]


def ack(psn, credits=0):
    return O.ACKNOWLEDGE, psn, credits


def nak(psn, syndrome):
    return O.ACKNOWLEDGE, psn, int(syndrome)


def test_ack_is_sent_only_on_request():
    peer = Peer()
    assert peer.send(O.WRITE_ONLY, b"a", ack_req=0) == []
    assert syndromes(peer.send(O.WRITE_ONLY, b"a")) == [ack(101)]


def test_unfinished_message_ends_with_the_connection():
    peer = Peer()
    peer.pair.post_recv(1, wr_id=5)
    peer.send(O.SEND_FIRST, bytes(256))
    assert not peer.qp.receives and not peer.pair.poll(1)
    peer.qp.fail()
    assert [(wc.wr_id, wc.status) for wc in peer.pair.poll(1)] == [(5, WCStatus.WR_FLUSH_ERR)]


def test_duplicate_does_not_displace_a_nak():
    peer = Peer()
    peer.send(O.WRITE_ONLY, b"a")
    peer.pair.hosts[1].port.space = 0
    peer.send(O.WRITE_ONLY, b"c", psn=102)
    peer.send(O.WRITE_ONLY, b"a", psn=100)
    peer.pair.hosts[1].port.space = 9
    peer.pair.hosts[1].run()
    assert syndromes(peer.answers()) == [nak(101, Syndrome.NAK_PSN_SEQUENCE)]


def test_msn_counts_messages():
    peer = Peer()
    peer.pair.post_recv(1)
    assert peer.send(O.WRITE_FIRST, bytes(256), dma_length=300)[-1].msn == 0
    assert peer.send(O.WRITE_LAST, bytes(44))[-1].msn == 1
    assert peer.send(O.READ_REQUEST, dma_length=1)[-1].msn == 2
    assert peer.send(O.FETCH_ADD)[-1].msn == 3
    assert peer.send(O.SEND_ONLY)[-1].msn == 4


def test_gap_is_nacked_once():
    peer = Peer()
    assert syndromes(peer.send(O.WRITE_ONLY, b"b", psn=101)) == [nak(100, Syndrome.NAK_PSN_SEQUENCE)]
    assert peer.send(O.WRITE_ONLY, b"c", psn=102) == [] and peer.counts["early_packets"] == 2
    assert syndromes(peer.send(O.WRITE_ONLY, b"a")) == [ack(100)]
    assert syndromes(peer.send(O.WRITE_ONLY, b"c", psn=102)) == [nak(101, Syndrome.NAK_PSN_SEQUENCE)]


def test_duplicate_write_is_acknowledged_and_not_executed():
    peer = Peer()
    peer.send(O.WRITE_ONLY, b"one")
    peer.send(O.WRITE_ONLY, b"two")
    assert syndromes(peer.send(O.WRITE_ONLY, b"one", psn=100)) == [ack(101)]
    assert peer.mr.read(3) == b"two" and peer.counts["duplicates"] == 1


def test_duplicate_send_takes_no_second_receive():
    peer = Peer()
    peer.pair.post_recv(1, wr_id=1)
    peer.pair.post_recv(1, wr_id=2)
    peer.answers()
    for _ in range(2):
        assert syndromes(peer.send(O.SEND_ONLY, b"hello", psn=100)) == [ack(100, 1)]
    assert len(peer.pair.poll(1)) == 1 and len(peer.qp.receives) == 1


def test_duplicate_read_is_executed_again_in_whole_or_in_part():
    peer = Peer()
    peer.mr.write(bytes(1024))
    assert [p.opcode for p in peer.send(O.READ_REQUEST, dma_length=1024)] == [
        O.READ_RESPONSE_FIRST, O.READ_RESPONSE_MIDDLE, O.READ_RESPONSE_MIDDLE, O.READ_RESPONSE_LAST]
    peer.mr.write(b"n" * 1024)
    again = peer.send(O.READ_REQUEST, psn=102, dma_length=512, to=512)
    assert [(p.opcode, p.psn) for p in again] == [(O.READ_RESPONSE_FIRST, 102), (O.READ_RESPONSE_LAST, 103)]
    assert b"".join(p.payload for p in again) == b"n" * 512
    assert [p.psn for p in peer.send(O.READ_REQUEST, psn=103, dma_length=256, to=768)] == [103]


@pytest.mark.parametrize("wrong", [{"to": 0}, {"dma_length": 513}, {"rkey": 0}, {"psn": 99}])
def test_duplicate_read_with_other_fields_is_dropped(wrong):
    peer = Peer()
    peer.send(O.READ_REQUEST, dma_length=1024)
    assert peer.send(O.READ_REQUEST, **{"psn": 102, "dma_length": 512, "to": 512} | wrong) == []
    assert peer.counts["unknown_duplicates"] == 1


def test_duplicate_atomic_is_answered_and_not_executed():
    peer = Peer(max_dest_rd_atomic=2)
    [first] = peer.send(O.FETCH_ADD, swap_add=5)
    [second] = peer.send(O.COMPARE_SWAP, compare=5, swap_add=77)
    assert (first.original, second.original, int.from_bytes(peer.mr.read(8), "little")) == (0, 5, 77)
    assert peer.send(O.FETCH_ADD, psn=100, swap_add=5)[0].original == 0
    assert peer.send(O.COMPARE_SWAP, psn=101, compare=5, swap_add=77)[0].original == 5
    assert int.from_bytes(peer.mr.read(8), "little") == 77
    assert peer.send(O.COMPARE_SWAP, psn=100) == [] and peer.counts["unknown_duplicates"] == 1
    peer.send(O.READ_REQUEST, dma_length=1)
    assert peer.send(O.FETCH_ADD, psn=100, swap_add=5) == [], "only the last two are kept"


def test_receiver_without_receives_sends_rnr_nak_and_drops_later_packets():
    peer = Peer(min_rnr_timer=7)
    assert syndromes(peer.send(O.SEND_ONLY, b"x", psn=100)) == [nak(100, Syndrome.RNR_NAK | 7)]
    assert peer.send(O.WRITE_ONLY, b"y", psn=101) == [] and peer.qp.qp_state is QPState.RTS
    peer.pair.post_recv(1)
    peer.pair.hosts[1].run()
    assert syndromes(peer.answers()) == [ack(99, 1)], "the new receive is reported"
    assert syndromes(peer.send(O.SEND_ONLY, b"x")) == [ack(100)]
    for n in range(3):
        peer.pair.post_recv(1)
        peer.pair.hosts[1].run()
        assert syndromes(peer.answers()) == ([] if n else [ack(100, 1)]), "it reports a receive too early"
    peer.qp.receives.clear()
    assert syndromes(peer.send(O.WRITE_ONLY_IMM, b"y")) == [nak(101, Syndrome.RNR_NAK | 7)]
    assert peer.mr.read(1) == b"x", "a WRITE that is not acknowledged is not done"


def test_write_with_immediate_takes_its_receive_at_its_end():
    peer = Peer()
    assert syndromes(peer.send(O.WRITE_FIRST, b"z" * 256, dma_length=257)) == [ack(100)]
    [rnr] = peer.send(O.WRITE_LAST_IMM, b"z", imm=9, psn=101)
    assert rnr.syndrome >> 5 == 1
    peer.pair.post_recv(1)
    peer.send(O.WRITE_LAST_IMM, b"z", imm=9)
    [wc] = peer.pair.poll(1)
    assert all_good([wc]) and (wc.byte_len, wc.imm_data) == (257, 9)


@pytest.mark.parametrize("packets", [
    [(O.SEND_MIDDLE, 256, {})], [(O.SEND_LAST, 1, {})], [(O.WRITE_MIDDLE, 256, {})], [(O.WRITE_LAST_IMM, 1, {})],
    [(O.SEND_FIRST, 256, {}), (O.SEND_FIRST, 256, {})], [(O.SEND_FIRST, 256, {}), (O.WRITE_LAST, 1, {})],
    [(O.SEND_FIRST, 256, {}), (O.SEND_ONLY, 1, {})], [(O.SEND_FIRST, 256, {}), (O.READ_REQUEST, 0, {})],
    [(O.WRITE_FIRST, 256, {"dma_length": 600}), (O.SEND_LAST, 1, {})],
    [(O.WRITE_FIRST, 256, {"dma_length": 600}), (O.FETCH_ADD, 0, {})],
])
def test_packet_out_of_order_of_its_message_is_an_invalid_request(packets):
    peer = Peer()
    peer.pair.post_recv(1)
    for opcode, size, fields in packets:
        peer.send(opcode, bytes(size), **fields)
    assert peer.naks(INVALID)
    took = any(opcode is O.SEND_FIRST for opcode, _, _ in packets)
    assert statuses(peer.pair.poll(1)) == [WCStatus.WR_FLUSH_ERR], f"the receive ended, taken or not: {took}"


@pytest.mark.parametrize("packets", [
    [(O.SEND_FIRST, 255, {})], [(O.SEND_FIRST, 0, {})], [(O.SEND_ONLY, 257, {})],
    [(O.SEND_FIRST, 256, {}), (O.SEND_MIDDLE, 100, {})], [(O.SEND_FIRST, 256, {}), (O.SEND_LAST, 0, {})],
    [(O.SEND_FIRST, 256, {}), (O.SEND_LAST, 257, {})],
    [(O.WRITE_ONLY, 10, {"dma_length": 11})], [(O.WRITE_ONLY, 10, {"dma_length": 9})],
    [(O.WRITE_ONLY, 0, {"dma_length": 9})], [(O.WRITE_FIRST, 256, {"dma_length": 256})],
    [(O.WRITE_FIRST, 256, {"dma_length": 300}), (O.WRITE_LAST, 45, {})],
    [(O.WRITE_FIRST, 256, {"dma_length": 300}), (O.WRITE_LAST, 43, {})],
    [(O.WRITE_FIRST, 256, {"dma_length": 300}), (O.WRITE_MIDDLE, 256, {})],
    [(O.WRITE_ONLY, 0, {"dma_length": (1 << 31) + 1})], [(O.READ_REQUEST, 0, {"dma_length": (1 << 31) + 1})],
    [(O.FETCH_ADD, 0, {"to": 4})], [(O.COMPARE_SWAP, 0, {"to": 1})],
])
def test_impossible_length_or_alignment_is_an_invalid_request(packets):
    peer = Peer()
    peer.pair.post_recv(1)
    for opcode, size, fields in packets:
        peer.send(opcode, b"x" * size, **fields)
    assert peer.naks(INVALID) and statuses(peer.pair.poll(1)) == [WCStatus.WR_FLUSH_ERR]


def test_send_longer_than_its_receive():
    peer = Peer()
    peer.pair.post_recv(1, length=300)
    peer.send(O.SEND_FIRST, bytes(256))
    peer.send(O.SEND_LAST, bytes(45))
    assert peer.naks(INVALID) and statuses(peer.pair.poll(1)) == [WCStatus.LOC_LEN_ERR]


def test_receive_with_deregistered_memory_is_an_error():
    peer = Peer()
    peer.pair.post_recv(1)
    peer.mr.close()
    peer.send(O.SEND_ONLY, b"x")
    assert peer.naks(OPERATIONAL) and statuses(peer.pair.poll(1)) == [WCStatus.LOC_PROT_ERR]


@pytest.mark.parametrize("opcode", [O.WRITE_ONLY, O.READ_REQUEST, O.FETCH_ADD])
@pytest.mark.parametrize("wrong", ["key", "behind", "before", "around", "right", "qp", "domain"])
def test_memory_without_permission_is_protected(opcode, wrong):
    peer = Peer()
    end, fields = peer.mr.length, {}
    if wrong == "key":
        fields = {"rkey": peer.mr.rkey ^ 1}
    elif wrong in ("behind", "before", "around"):
        fields = {"to": {"behind": end, "before": -8, "around": (1 << 63) - 8}[wrong]}
    elif wrong == "right":
        fields = {"rkey": SoftMR(peer.pair.pd[1], 4096, AccessFlag.LOCAL_WRITE).rkey}
        fields["va"] = next(iter(peer.pair.pd[1].mrs.keys() - {peer.mr})).buf
    elif wrong == "qp":
        object.__setattr__(peer.qp.attr, "qp_access_flags", AccessFlag(0))
    else:
        mr = SoftMR(PD(peer.pair.ends[1]), 4096, peer.mr.access)
        fields = {"rkey": mr.rkey, "va": mr.buf}
    size = 8 if opcode is O.WRITE_ONLY else 0
    peer.send(opcode, b"x" * size, **{"dma_length": 8} | fields)
    assert peer.naks(ACCESS) and not any(peer.mr.view)


def test_zero_length_access_is_not_checked():
    """A zero-length WRITE or READ has no key."""
    peer = Peer()
    assert syndromes(peer.send(O.WRITE_ONLY, rkey=0, va=0)) == [ack(100)]
    assert [p.opcode for p in peer.send(O.READ_REQUEST, rkey=0, va=0)] == [O.READ_RESPONSE_ONLY]


def test_memory_deregistered_under_a_read_is_not_read():
    peer = Peer()
    peer.pair.hosts[1].port.space = 1
    take, peer.pair.ends[1].take_frames = peer.pair.ends[1].take_frames, lambda most: []
    peer.send(O.READ_REQUEST, dma_length=1024)
    assert len(take(2)) == 2
    peer.mr.close()
    [frame] = take(9)
    answer = peer.pair.packet_of(frame, 1)
    assert (answer.opcode, answer.psn, answer.syndrome) == (O.ACKNOWLEDGE, 102, ACCESS)
    assert peer.qp.qp_state is QPState.ERR and not take(9)


def test_reads_beyond_the_limit_are_an_invalid_request():
    peer = Peer(max_dest_rd_atomic=2)
    peer.pair.hosts[1].port.space = 0
    for _ in range(2):
        peer.send(O.READ_REQUEST, dma_length=8)
    assert peer.qp.qp_state is QPState.RTS
    peer.send(O.FETCH_ADD, swap_add=1)
    assert peer.naks(INVALID) and not any(peer.mr.view)


def test_pending_replies_are_bounded():
    """One reply for each stored READ and one acknowledgement wait, at most.

    Duplicates, gaps and new requests arrive in any order.
    """
    peer = Peer(max_dest_rd_atomic=3)
    peer.pair.hosts[1].port.space = 0
    for n in range(3):
        peer.send(O.READ_REQUEST, dma_length=600, to=n)
    for n in range(300):
        number, packet = n % 9 // 3, n % 3
        peer.send(O.READ_REQUEST, psn=100 + n % 9, dma_length=600 - packet * 256, to=number + packet * 256)
        peer.send(O.WRITE_ONLY, b"x", psn=100)
        peer.send(O.WRITE_ONLY, b"x", psn=peer.psn + 1)
        peer.send(O.WRITE_ONLY, b"x")
        assert len(peer.qp.responder.replies) <= 4
    assert peer.counts["duplicates"] == 600 and not peer.counts["unknown_duplicates"]
    assert peer.qp.qp_state is QPState.RTS


@pytest.mark.parametrize(("changes", "counter"), [
    ({"own_ip": 0x0A000099}, "foreign_sender"), ({"ip": 5}, "other_host"), ({"mac": 5}, "other_host")])
def test_packet_of_or_for_another_host_is_counted_and_dropped(changes, counter):
    peer = Peer()
    packet = RcPacket(O.WRITE_ONLY, peer.qp.qp_num, 100, 1, b"evil", va=peer.mr.buf, rkey=peer.mr.rkey, dma_length=4)
    peer.pair.inject(1, packet, **changes)
    assert peer.counts == {counter: 1} and not peer.pair.frames and not any(peer.mr.view)
    packet.dest_qp += 1
    peer.pair.inject(1, packet)
    assert peer.counts == {counter: 1, "unknown_qp": 1} and MACS[1] == peer.pair.ends[1].mac


def test_queue_pair_in_error_is_silent():
    peer = Peer()
    peer.qp.fail()
    assert peer.send(O.WRITE_ONLY, b"x") == [] and peer.counts == {"not_connected": 1}


@pytest.mark.parametrize("psn", [(100 + (1 << 22)) % (1 << 24), (100 - (1 << 22)) % (1 << 24), 99, 101])
def test_far_psn_changes_nothing(psn):
    """A PSN ahead is a gap; an older PSN is a duplicate, which is acknowledged; nothing is written."""
    peer = Peer()
    peer.send(O.WRITE_ONLY, b"evil", psn=psn)
    assert not any(peer.mr.view) and peer.qp.responder.epsn == 100
    assert peer.counts["early_packets"] + peer.counts["duplicates"] == 1


def test_a_marked_packet_is_answered_with_one_notification_in_an_interval():
    """Packets of unknown peers are not answered; notifications of the peer change nothing."""
    peer = Peer()

    def marks(ip=IPS[0]):
        packet = RcPacket(O.WRITE_ONLY, peer.qp.qp_num, peer.psn, 0, b"a", va=peer.mr.buf, rkey=peer.mr.rkey,
                          dma_length=1)
        peer.psn += ip == IPS[0]
        peer.pair.hosts[1].arrive(marked(build(packet, Addresses(MACS[1], IPS[1], MACS[0], ip, 0xC000))))
        return [answer.opcode for answer in peer.answers()]

    assert not marks(ip=IPS[0] ^ 1)
    assert marks() == [O.CNP] and not marks()
    assert peer.counts["cnps_sent"] == 1
    peer.pair.run(lambda: False, CNP_INTERVAL_NS)
    assert marks() == [O.CNP]
    assert not peer.send(O.CNP, ack_req=0, psn=0) and peer.counts["cnps_received"] == 1
    assert peer.qp.qp_state is QPState.RTS
