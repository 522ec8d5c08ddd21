"""One host writes 1 MiB into the memory of another, over a link that loses one packet in fifty."""

from weft.driver import CQ, MR, PD, QP, SGE, AccessFlag, Context, SendWR, WROpcode, rc_init_attr
from weft.model.functional.host import LinkConfig, connected_pair

SIZE = 1 << 20
_, devices, _ = connected_pair(seed=1, forward=LinkConfig(loss=0.02))
hosts = [Context(device, mac=0x020000000001 + i, ip=0x0A000001 + i) for i, device in enumerate(devices)]
pds = [PD(host) for host in hosts]
cqs = [CQ(host, 16) for host in hosts]
mrs = [MR(pd, SIZE, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE) for pd in pds]
qps = [QP(pd, rc_init_attr(cq)) for pd, cq in zip(pds, cqs, strict=True)]
for qp, peer in zip(qps, reversed(qps), strict=True):
    qp.connect(peer.connection)

mrs[0].write(bytes(range(256)) * (SIZE // 256))
work = SendWR(wr_id=7, sg=[SGE(mrs[0].buf, SIZE, mrs[0].lkey)], opcode=WROpcode.RDMA_WRITE)
work.set_wr_rdma(mrs[1].rkey, mrs[1].buf)
qps[0].post_send(work)
while not len(cqs[0]):
    for host in hosts:
        host.progress()
    hosts[0].wait(1_000)
_, [done] = cqs[0].poll()
assert mrs[1].read(SIZE, 0) == mrs[0].read(SIZE, 0)
print(f"request {done.wr_id}: {done.status.name}, {qps[0].sender.counts['retransmissions']} packets sent again")
