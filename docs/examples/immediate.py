"""Write with an immediate: its completion at the receiver means that everything before it is placed."""

from two_hosts import TwoHosts

from weft.driver import RecvWR

hosts = TwoHosts()
a, b = hosts.a, hosts.b
ended = []


def sending():
    a.mr.write(b"first")
    a.write(b, 5, wr_id=1)
    a.write(b, 5, wr_id=2, imm=42)
    while len(ended) < 2:
        ended.extend(a.cq.wait(2, timeout_ns=1_000_000))


def receiving():
    b.qp.post_recv(RecvWR(wr_id=100))
    [message] = b.cq.wait(1, timeout_ns=1_000_000)
    print(f"receive {message.wr_id}: immediate {message.imm_data}, {message.byte_len} bytes, {b.mr.read(5, 0)}")
    while len(ended) < 2:       # the peer still needs acknowledgements
        b.context.progress()
        b.context.wait(50_000)


hosts.run(sending, receiving)
for done in ended:
    print(f"request {done.wr_id}: {done.status.name}")
