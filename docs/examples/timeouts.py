"""Time until a sender gives up after the link breaks."""

from two_hosts import TwoHosts

for settings in ({}, {"timeout": 4}, {"timeout": 8, "retry_cnt": 2},
                 {"timeout": 8, "retry_cnt": 2, "probe_timeout_ns": 500_000}):
    hosts = TwoHosts(**settings)
    a, b = hosts.a, hosts.b
    a.write(b, 1000)
    while not len(a.cq):
        b.context.progress()
        a.context.progress()
        a.context.wait(1_000)
    a.cq.poll()
    hosts.links[0].drop = lambda frame: True
    start = a.context.device.now_ns()
    a.write(b, 1000)
    [done] = a.cq.wait(1)
    ms = (a.context.device.now_ns() - start) / 1e6
    print(f"{done.status.name} after {ms:.2f} ms with {settings or 'the defaults'}")
