"""Sleep until the completion channel has an event."""

from two_hosts import TwoHosts

from weft.driver import RecvWR

hosts = TwoHosts()
a, b = hosts.a, hosts.b
b.cq.req_notify()
b.qp.post_recv(RecvWR(wr_id=5))


def sending():
    a.context.serve(100_000)
    a.write(b, 64, imm=1)
    a.cq.wait(1, timeout_ns=1_000_000)


def receiving():
    cq = b.channel.get_cq_event(timeout_ns=1_000_000)
    cq.req_notify()                        # before polling: later completions make an event again
    _, [message] = cq.poll()
    print(f"receive {message.wr_id} after {b.context.device.now_ns() // 1000} µs")


hosts.run(sending, receiving)
