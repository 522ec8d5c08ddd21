"""A wrong key ends the connection: the request fails, the rest is flushed, and the QPs are connected again."""

from two_hosts import TwoHosts

hosts = TwoHosts()
a, b = hosts.a, hosts.b


def until_completed(count):
    """Run both hosts until ``count`` requests of ``a`` are complete, and return their completions."""
    found = []
    while len(found) < count:
        b.context.progress()
        found += a.cq.poll(count)[1]
        a.context.wait(1_000)
    return found


a.write(b, 100, wr_id=1)
a.write(b, 100, wr_id=2, rkey=b.mr.rkey ^ 1)
a.write(b, 100, wr_id=3)
for done in until_completed(3):
    print(f"request {done.wr_id}: {done.status.name}")
print("QP of a:", a.qp.qp_state.name)

for host in (a, b):
    host.qp.reset()
a.qp.connect(b.qp.connection)
b.qp.connect(a.qp.connection)
a.write(b, 100, wr_id=4)
print(f"request 4: {until_completed(1)[0].status.name}")
