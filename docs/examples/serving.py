"""Serve the peers of a host whose program only waits, until the other program has finished."""

from two_hosts import TwoHosts

hosts = TwoHosts()
a, b = hosts.a, hosts.b
serving = True


def serve():
    while serving:
        b.context.progress()
        b.context.wait(50_000)      # nanoseconds; returns earlier for an event of the card or a timer


def write():
    global serving
    for wr_id in range(3):
        a.write(b, 4096, wr_id=wr_id)
        [done] = a.cq.wait(1, timeout_ns=1_000_000)
        print(f"request {done.wr_id}: {done.status.name}")
    serving = False


hosts.run(write, serve)
