"""Effect of `reorder_distance` on a link that delays packets."""

from two_hosts import TwoHosts

from weft.driver import ContextConfig
from weft.model.link import LinkConfig

SIZE = 1 << 20

for distance in (1, 4, 16):
    hosts = TwoHosts(SIZE, config=ContextConfig(reorder_distance=distance, retransmit_slack=distance),
                     link=LinkConfig(reorder=0.05, reorder_distance=8))
    a, b = hosts.a, hosts.b
    a.write(b, SIZE)
    while not len(a.cq):
        b.context.progress()
        a.context.progress()
        a.context.wait(1_000)
    print(f"reorder_distance {distance}: nothing lost, {a.qp.sender.counts['retransmissions']} packets sent again")
