"""Two hosts with the document's protocol, memory and connected queue pairs; shared by its tests."""

from weft.driver.soft.raw.endpoint import Endpoint
from weft.driver.soft.raw.packet import Opcode, parse
from weft.driver.soft.raw.qp import WorkRequest
from weft.driver.terms.enums import AccessFlag, WCStatus
from weft.tb.test.driver.soft.hosts import MACS, Pair

ALL = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ


class RawPair(Pair):
    """Host 0 and host 1, each with a region ``mr[i]`` and ``qps`` queue pairs connected with those of the other.

    Parameters
    ----------
    size : int
        Bytes of each region.
    seqs : (int, int)
        First sequence numbers of host 0 and of host 1.
    connected : bool
    options
        Of :class:`~weft.driver.soft.raw.endpoint.Endpoint`.
    """

    def __init__(self, size=1 << 16, *, qps=1, seqs=(0, 0), seed=0, link=None, connected=True, **options):
        super().__init__(lambda i, random: Endpoint(MACS[i], random=random, **options), seed, link)
        self.mr = [end.regions.get(end.rdma_reg_mr(size, ALL)) for end in self.ends]
        self.qp = [[end.rdma_qp_create() for _ in range(qps)] for end in self.ends]
        if connected:
            for i in range(2):
                for mine, other in zip(self.qp[i], self.qp[1 - i], strict=True):
                    assert self.ends[i].rdma_qp_connect(
                        mine, MACS[1 - i], other, tx_seq=seqs[i], rx_seq=seqs[1 - i]) == 0

    def request(self, i, opcode=Opcode.WRITE, *, length=64, at=0, to=0, wr_id=1, **changes):
        """Return a request of host ``i`` for ``length`` bytes.

        The bytes are at offset ``at`` of its region and at offset ``to`` of the other's.
        """
        there = self.mr[1 - i]
        fields = {"local_mr_id": self.mr[i].id, "local_offset": at, "remote_mr_id": there.id,
                  "remote_addr": there.vaddr + to, "remote_key": there.key, "length": length}
        return WorkRequest(wr_id, opcode, **fields | changes)

    def post(self, i, *arguments, qp=0, **changes):
        """Post a request; return the result of ``rdma_post_send``."""
        return self.ends[i].rdma_post_send(self.qp[i][qp], self.request(i, *arguments, **changes))

    def poll(self, i, qp=0):
        """Return all completions of a queue pair."""
        return self.ends[i].rdma_poll_cq(self.qp[i][qp], 1 << 30)

    def done(self, i, count, limit_ns=10**9, qp=0):
        """Wait for ``count`` completions, and return all of the queue pair."""
        queue = self.state(i, qp).cq
        assert self.run(lambda: len(queue) >= count, limit_ns), f"{len(queue)} of {count} completions"
        return self.poll(i, qp)

    def state(self, i, qp=0):
        """Return the QueuePair."""
        return self.ends[i].qps.get(self.qp[i][qp])

    def sent(self, i, opcode=None):
        """Return the packets that a host sent, of one opcode or all."""
        packets = [parse(frame) for host, frame in self.frames if host == i]
        return [packet for packet in packets if opcode in (None, packet.opcode)]

    def fill(self, i, data, at=0):
        self.mr[i].data[at:at + len(data)] = data

    def inject(self, i, packet_or_frame):
        """Let a frame arrive at a host now."""
        self.hosts[i].arrive(packet_or_frame)


def statuses(completions):
    return [completion.status for completion in completions]


def all_good(completions):
    return all(status is WCStatus.SUCCESS for status in statuses(completions))


__all__ = ["ALL", "Opcode", "RawPair", "WCStatus", "all_good", "statuses"]
