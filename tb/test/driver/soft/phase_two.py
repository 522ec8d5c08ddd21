"""Second phase of "Network RDMA Architecture Design" over two cards.

Ping, connect, WRITE, READ, and every row of the table of errors. The functions are programs of
:mod:`weft.tb.app.stage`: host a is the requester, host b the responder.
"""

import errno
import random

from weft.driver.soft.raw.endpoint import Endpoint
from weft.driver.soft.raw.packet import ETHTYPE_RDMA, Opcode
from weft.driver.soft.raw.qp import WorkRequest
from weft.driver.terms.enums import AccessFlag
from weft.tb.test.driver.soft.card_end import CardEnd

ALL = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ
BYTES, MESSAGES = 4000, 10
TIMEOUT_NS = 40_000
ROWS = PLAIN, LOSS, CHECKSUM, INVALID_MR, MEMORY, QUEUE = range(6)      # one queue pair for each
SCARCE = {"a": {"tx_queue": 8}, "b": {"buffers": 8}}


def data():
    """Return the data that host a has in memory and writes."""
    return random.Random("phase two").randbytes(BYTES)


class _Host:
    """Endpoint at a card, with memory and queue pairs."""

    def __init__(self, host):
        self.end = Endpoint(host.context.mac, timeout_ns=TIMEOUT_NS, **SCARCE[host.side])
        self.card = CardEnd(host, self.end, lambda frame, _: frame[12:14] == ETHTYPE_RDMA.to_bytes(2, "big"))
        self.region = self.end.regions.get(self.end.rdma_reg_mr(2 * BYTES, ALL))
        self.qps = [self.end.rdma_qp_create() for _ in ROWS]

    def connect(self, mac):
        for number in self.qps:
            assert self.end.rdma_qp_connect(number, mac, number) == 0


class _Requester(_Host):
    """Requester of host a; ``there`` is the memory of the peer (ID, key, address)."""

    def __init__(self, host, there):
        super().__init__(host)
        self.there = there
        self.region.data[:BYTES] = data()

    def answer(self, number):
        """Wait for the response to an inquiry, and return it."""
        found = []

        def came():
            if (value := self.end.rdma_answer(number)) != -errno.EINPROGRESS:
                found.append(value)
            return found
        self.card.until(came)
        return found[0]

    def post(self, qp, opcode=Opcode.WRITE, length=BYTES, at=0, to=0, wr_id=1, **changes):
        mr_id, key, address = self.there
        fields = {"remote_mr_id": mr_id, "remote_addr": address + to, "remote_key": key} | changes
        return self.end.rdma_post_send(qp, WorkRequest(wr_id, opcode, self.region.id, at, length=length, **fields))

    def completions(self, qp, count):
        """Wait for ``count`` completions; return the number and status of each."""
        done = []

        def came():
            done.extend(self.end.rdma_poll_cq(qp, count))
            return len(done) >= count
        self.card.until(came)
        return [[completion.wr_id, completion.status.name] for completion in done]

    def burst(self, qp):
        """Post small WRITEs in a row; return their completions."""
        size = BYTES // MESSAGES
        for n in range(MESSAGES):
            assert self.post(qp, length=size, at=n * size, to=n * size, wr_id=n) == 0
        return self.completions(qp, MESSAGES)


def damaged(frame):
    """Return the frame with one bit of the payload changed."""
    return frame[:-1] + bytes([frame[-1] ^ 1])


def lost(_frame):
    """Return None: the frame is lost."""


def asks(host):
    """Run host a; return the outcome of each row."""
    requester = _Requester(host, host.receive())
    end, spoil, came = requester.end, requester.card.port.spoil, {}
    came["not connected"] = requester.post(PLAIN)
    host.send(end.mac)
    [theirs] = requester.card.receive()
    mac = requester.answer(end.rdma_discover(PLAIN, host.now_ns))
    came["found"] = mac == theirs
    came["ping"] = requester.answer(end.rdma_ping(mac, host.now_ns))
    requester.connect(mac)
    requester.post(PLAIN)
    requester.post(PLAIN, Opcode.READ, at=BYTES, wr_id=2)
    came["plain"] = requester.completions(PLAIN, 2)
    came["read"] = bytes(requester.region.data[BYTES:]) == data()
    counts = end.counts.copy()
    spoil(1, lost)
    requester.post(LOSS)
    came["packet loss"] = requester.completions(LOSS, 1)
    came["timeouts"] = end.counts["timeouts"] - counts["timeouts"]
    counts = end.counts.copy()
    spoil(1, damaged)
    requester.post(CHECKSUM)
    came["checksum error"] = requester.completions(CHECKSUM, 1)
    came["at once"] = end.counts["retransmissions"] - counts["retransmissions"]
    requester.post(INVALID_MR)
    requester.post(INVALID_MR, wr_id=2, remote_mr_id=99)
    requester.post(INVALID_MR, wr_id=3)
    came["invalid MR"] = requester.completions(INVALID_MR, 3)
    spoil(0, lost)
    came["out of memory"] = requester.burst(MEMORY)
    counts = end.counts.copy()
    came["queue full"] = requester.burst(QUEUE)
    came["held back"] = end.counts["tx_queue_full"] - counts["tx_queue_full"]
    host.send("done")
    return came


def answers(host):
    """Run host b; return its counters, its numbers of completions, and whether all data are in place."""
    answerer = _Host(host)
    region, end = answerer.region, answerer.end
    host.send(region.id, region.key, region.vaddr)
    [mac] = answerer.card.receive()
    answerer.connect(mac)
    host.send(end.mac)
    answerer.card.receive()
    written = [len(end.rdma_poll_cq(number, 99)) for number in answerer.qps]
    return {"counts": dict(end.counts), "written": written, "same": bytes(region.data[:BYTES]) == data()}
