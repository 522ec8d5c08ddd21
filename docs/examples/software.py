"""Two hosts without a card: RoCEv2 in software, over a link that loses one frame in twenty."""

from weft.driver import CQ, PD, SGE, AccessFlag, RecvWR, SendWR, WROpcode, rc_init_attr
from weft.driver.soft.ports import MemoryPort, Pump
from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import SoftQP
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop

loop, ports, pumps = EventLoop(), [], []
links = [Link(loop, lambda frame, to=to: ports[to].arrive(frame), LinkConfig(loss=0.05), seed=to) for to in (1, 0)]
hosts = [SoftContext(mac=0x02000000000A + i, ip=0x0A00000A + i) for i in range(2)]
for host, link in zip(hosts, links, strict=True):
    ports.append(MemoryPort(link.send))
    pumps.append(Pump(host, ports[-1]))
cqs = [CQ(host, 64) for host in hosts]
mrs = [SoftMR(PD(host), 100_000, AccessFlag.LOCAL_WRITE) for host in hosts]
qps = [SoftQP(mr.pd, rc_init_attr(cq)) for mr, cq in zip(mrs, cqs, strict=True)]
for qp, peer in zip(qps, reversed(qps), strict=True):
    qp.connect(peer.connection)

mrs[0].write(bytes(range(200)) * 500)
qps[1].post_recv(RecvWR(8, sg=[SGE(mrs[1].buf, 100_000, mrs[1].lkey)]))
qps[0].post_send(SendWR(7, sg=[SGE(mrs[0].buf, 100_000, mrs[0].lkey)], opcode=WROpcode.SEND))
while not len(cqs[0]):
    for pump in pumps:
        pump.round(loop.now_ns)
    loop.run(loop.now_ns + 1_000)
for cq in cqs:
    print([(wc.wr_id, wc.status.name, wc.byte_len) for wc in cq.poll(9)[1]])
assert mrs[1].read(100_000) == mrs[0].read(100_000)
print("some packets were sent again:", hosts[0].counts["resent"] > 0)
