"""A send, a read, and a counter in the peer's memory that one atomic raises."""

from two_hosts import TwoHosts

from weft.driver import MR, SGE, AccessFlag, RecvWR, SendWR, WCOpcode, WROpcode

MAY = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC

hosts = TwoHosts(max_rd_atomic=4, max_dest_rd_atomic=4, qp_access_flags=MAY)
a, b = hosts.a, hosts.b
shared = MR(b.mr.pd, 64, MAY)
ended = False


def post(opcode, length, at=0, **fields):
    """Post an operation that takes its bytes from the MR of ``a``, or puts them there, and await its end."""
    a.qp.post_send(SendWR(opcode=opcode, sg=[SGE(a.mr.buf + at, length, a.mr.lkey)], **fields))
    [done] = a.cq.wait(1, timeout_ns=1_000_000)
    print(f"{done.opcode.name}: {done.status.name}")


def asking():
    global ended
    a.mr.write(b"a message")
    post(WROpcode.SEND, 9)
    post(WROpcode.RDMA_READ, 5, at=100, rkey=shared.rkey, remote_addr=shared.buf + 8)
    post(WROpcode.ATOMIC_FETCH_AND_ADD, 8, at=200, rkey=shared.rkey, remote_addr=shared.buf, compare_add=3)
    print(f"read {a.mr.read(5, 100)}; the counter was {int.from_bytes(a.mr.read(8, 200), 'little')}")
    ended = True


def answering():
    shared.write((39).to_bytes(8, "little") + b"there")
    b.qp.post_recv(RecvWR(wr_id=100, sg=[SGE(b.mr.buf, 64, b.mr.lkey)]))
    [message] = b.cq.wait(1, timeout_ns=1_000_000)
    assert message.opcode == WCOpcode.RECV
    print(f"receive {message.wr_id}: {message.byte_len} bytes, {b.mr.read(message.byte_len, 0)}")
    while not ended:            # reads and atomics are answered by the driver
        b.context.progress()
        b.context.wait(50_000)


hosts.run(asking, answering)
print(f"the counter is {int.from_bytes(shared.read(8, 0), 'little')}")
