"""Address resolution: requests, replies, stored addresses, and addresses that move."""

import pytest

from weft.driver.engine.neighbours import ASK_NS, ASKS, CLAIM_ASKS, CLAIMS_MAX, Neighbours
from weft.driver.protocol import arp
from weft.driver.terms.enums import WROpcode
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import wire
from weft.model.impairments import LinkConfig
from weft.tb.sim.pair.functional_pair import make_endpoints, make_pair, transfer

MAC, IP = 0x02_0000_0000_01, 0x0A00_0001
PEER_IP, OLD, NEW = 0x0A00_0002, 0x02_0000_0000_02, 0x02_0000_0000_22


class Host:
    """Neighbour table of a host, with a clock."""

    def __init__(self):
        self.now, self.sent, self.found, self.missing = 0, [], [], []
        self.table = Neighbours(MAC, IP, send=self.sent.append, found=lambda ip, mac: self.found.append((ip, mac)),
                                missing=self.missing.append)

    def wait(self, ns):
        end = self.now + ns
        while self.table.deadline is not None and self.table.deadline <= end:
            self.now = max(self.now, self.table.deadline)
            self.table.progress(self.now)
        self.now = end

    def receive(self, mac, *, tpa=IP, spa=PEER_IP):
        self.table.on_frame(arp._frame(arp.BROADCAST, mac, oper=arp.REPLY, sha=mac, spa=spa, tha=0, tpa=tpa))


def test_silent_neighbour_is_missing():
    host = Host()
    host.table.want(PEER_IP, 0)
    host.wait(ASK_NS << ASKS)
    assert len(host.sent) == ASKS and host.missing == [PEER_IP] and host.table.find(PEER_IP) is None


def test_unrequested_addresses_are_not_learned():
    host = Host()
    host.receive(OLD)
    host.receive(OLD, tpa=PEER_IP)
    assert host.table.find(PEER_IP) is None and host.table.deadline is None


def test_moved_address_is_detected():
    """The new owner broadcasts a reply, and the old owner is silent."""
    host = Host()
    host.table.add(PEER_IP, OLD)
    host.receive(NEW, tpa=PEER_IP)
    assert host.table.find(PEER_IP) == OLD
    host.wait(ASK_NS << CLAIM_ASKS)
    assert len(host.sent) == CLAIM_ASKS and host.found[-1] == (PEER_IP, NEW) and host.table.find(PEER_IP) == NEW
    assert host.table.deadline is None


def test_address_stays_with_its_responding_owner():
    host = Host()
    host.table.add(PEER_IP, OLD)
    for _ in range(5):
        host.receive(NEW, tpa=PEER_IP)
        host.wait(1)
        host.receive(NEW)
        host.receive(OLD)
        host.wait(ASK_NS << ASKS)
    assert host.table.find(PEER_IP) == OLD and len(host.sent) == 5 and not host.found and not host.missing


@pytest.mark.parametrize("mac", [OLD, NEW])
def test_manual_entry_ends_a_claim(mac):
    """Afterwards every host may still send ARP frames."""
    host = Host()
    host.table.add(PEER_IP, OLD)
    host.receive(NEW, tpa=PEER_IP)
    host.table.add(PEER_IP, mac)
    assert not host.table._claims and host.table.deadline is None
    for claimant in (OLD, NEW):
        host.receive(claimant)
        host.wait(ASK_NS << ASKS)
    assert not host.missing and not host.table._claims


def test_local_address_is_not_taken_and_claims_are_bounded():
    host = Host()
    host.receive(NEW, spa=IP, tpa=IP)
    for n in range(2 * CLAIMS_MAX):
        host.table.add(PEER_IP + n, OLD)
        host.receive(NEW, spa=PEER_IP + n, tpa=PEER_IP + n)
    assert host.table.find(IP) == MAC and len(host.table._claims) == len(host.table.asked) == CLAIMS_MAX


def test_a_connection_follows_its_peer_to_another_card_address():
    pair = make_pair()
    ends = make_endpoints(pair, 4096)
    context, device = pair.contexts[0], pair.devices[0]
    frames = []
    transmit, device.transmit = device.transmit, lambda frame: frames.append(frame) or transmit(frame)
    device.card.receive(arp._frame(arp.BROADCAST, NEW, oper=arp.REPLY, sha=NEW, spa=pair.contexts[1].ip, tha=0,
                                   tpa=pair.contexts[1].ip))
    pair.devices[1].card.receive = lambda frame: None      # the old owner is silent
    qp = ends[0].qps[0]
    context.run_until(lambda: qp.engine.path.mac == NEW, 10**9)
    wr = SendWR(opcode=WROpcode.RDMA_WRITE, sg=[SGE(ends[0].mr.buf, 8, ends[0].mr.lkey)])
    wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
    qp.post_send(wr)
    context.run_until(lambda: any(wire.ETH.unpack(frame).dst == NEW for frame in frames), 10**9)


@pytest.mark.parametrize("loss", [0, 0.2])
def test_a_receiver_whose_requests_were_not_answered_asks_again_when_it_must_answer(loss):
    """A program that does not call its driver for half a second answers no request, and may then begin to write."""
    link = LinkConfig(delay_ns=1_000, loss=loss)
    pair = make_pair(seed=3, forward=link, backward=link)
    sender, receiver = pair.contexts
    card = pair.devices[0].card
    del receiver.engine.neighbours._known[sender.ip]
    arrive, card.receive = card.receive, lambda frame: None
    ends = make_endpoints(pair, 1 << 16)
    ends[0].mr.write(bytes(range(256)) * 256)
    receiver.run_until(lambda: not receiver.engine.neighbours.asked, 10**9)
    assert ends[1].qps[0].engine.path.mac is None
    card.receive = arrive
    transfer(pair, ends)
    assert ends[1].mr.read(1 << 16, 0) == bytes(range(256)) * 256
