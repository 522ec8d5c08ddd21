"""Work requests that the peer or the local card must reject: the right completion, and all other QPs continue."""

import random

import cocotb
from cocotb.task import bridge

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import AccessFlag, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.test.cards.hostile_pair import HostilePair

FILE_BYTES = 60_000
TIMEOUT_NS = 2_000_000
FAR_NS = 5_000             # the local card rejects long before the peer does
GOOD, BAD, BEHIND, BEHIND_IMM, LATE = range(5)     # wr_id of each QP's requests
BAD_BYTES = 5000                                   # several packets
WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE


class Party:
    """One side: a file's endpoint, and QPs with one kind of error each."""

    def __init__(self, pair, side, names, rng):
        context = self.context = pair.contexts[side]
        self.endpoint = Endpoint(context, FILE_BYTES)
        self.pd, self.other = PD(context), PD(context)
        self.cq = CQ(context, 256)
        self.data = rng.randbytes(3 * abi.PAGE_4K)
        self.mr = MR(self.pd, len(self.data), WRITE)
        self.read_only = MR(self.pd, 2 * abi.PAGE_4K, AccessFlag.LOCAL_WRITE)
        self.other_mr = MR(self.other, 2 * abi.PAGE_4K, WRITE)
        gone = MR(self.pd, 2 * abi.PAGE_4K, WRITE)
        self.gone = (gone.buf, gone.rkey)
        gone.close()
        self.qps = {name: self.new_qp() for name in names}

    def new_qp(self):
        return QP(self.pd, rc_init_attr(self.cq, max_send_wr=8, max_recv_wr=4))

    def close(self):
        self.pd.close()
        self.other.close()
        self.endpoint.close()
        blocks = self.context.knitting.check()
        assert blocks["free"] == sum(blocks.values()), blocks


def remote_refusals(b):
    """Return the accesses that the peer must reject: name to (address, rkey)."""
    mr = b.mr
    return {
        "key of no MR": (mr.buf, 31 << 8 | 0x5A),
        "wrong tag": (mr.buf, mr.rkey ^ 0x10),
        "old key": b.gone,
        "before the MR": (mr.buf - 1, mr.rkey),
        "over the end": (mr.buf + mr.length - BAD_BYTES + 1, mr.rkey),
        "MR of another domain": (b.other_mr.buf, b.other_mr.rkey),
        "MR without permission": (b.read_only.buf, b.read_only.rkey),
        "the peer's lkey": (mr.buf, mr.lkey),
        "QP without permission": (mr.buf, mr.rkey),
    }


def local_refusals(a):
    """Return the accesses that the local card must reject: name to (address, lkey)."""
    return {
        "wrong lkey": (a.mr.buf, a.mr.lkey ^ 1),
        "lkey too short": (a.mr.buf + a.mr.length - 100, a.mr.lkey),
        "lkey of another domain": (a.other_mr.buf, a.other_mr.lkey),
        "own rkey": (a.mr.buf, a.mr.rkey),
    }


REMOTE = ["key of no MR", "wrong tag", "old key", "before the MR", "over the end", "MR of another domain",
          "MR without permission", "the peer's lkey", "QP without permission"]
LOCAL = ["wrong lkey", "lkey too short", "lkey of another domain", "own rkey"]


def connect(a, b):
    a.endpoint.connect(b.endpoint.connections)
    b.endpoint.connect(a.endpoint.connections)
    for name, qp in a.qps.items():
        other = b.qps[name]
        access = AccessFlag.LOCAL_WRITE if name == "QP without permission" else AccessFlag.REMOTE_WRITE
        qp.connect(other.connection)
        other.connect(qp.connection, qp_access_flags=access)
        other.post_recv(RecvWR(wr_id=7))
    post_receives(b.endpoint)


def request(a, wr_id, local, remote, length, opcode=WROpcode.RDMA_WRITE):
    wr = SendWR(wr_id=wr_id, sg=[SGE(local[0], length, local[1])], opcode=opcode, send_flags=SendFlags.SIGNALED,
                imm_data=wr_id)
    wr.set_wr_rdma(remote[1], remote[0])
    return wr


def misbehave(a, b):
    """Run side A: post everything at once, collect all completions: name to list of (wr_id, status)."""
    local, remote = (a.mr.buf, a.mr.lkey), (b.mr.buf, b.mr.rkey)
    for name, qp in a.qps.items():
        forbidden = remote_refusals(b).get(name, remote)
        own = local_refusals(a).get(name, local)
        if name != "QP without permission":  # on that QP the first one is rejected, too
            qp.post_send(request(a, GOOD, local, remote, 700))
        qp.post_send(request(a, BAD, own, forbidden, BAD_BYTES))
        qp.post_send(request(a, BEHIND, local, remote, 300))
        qp.post_send(request(a, BEHIND_IMM, local, remote, 300, WROpcode.RDMA_WRITE_WITH_IMM))
    names = {qp.qp_num: name for name, qp in a.qps.items()}
    found = {name: [] for name in names.values()}
    expected = 4 * len(names) - 1
    while expected:
        for wc in a.cq.wait(64, TIMEOUT_NS):
            found[names[wc.qp_num]].append((wc.wr_id, wc.status))
            expected -= 1
    for qp in a.qps.values():
        assert qp.qp_state is QPState.ERR
        qp.post_send(request(a, LATE, local, remote, 10))
    a.context.run_until(lambda: len(a.cq) == len(names), TIMEOUT_NS)
    for wc in a.cq.take(64)[1]:
        found[names[wc.qp_num]].append((wc.wr_id, wc.status))
    return found


def check(found):
    for name, completions in found.items():
        status = WCStatus.REM_ACCESS_ERR if name in REMOTE else WCStatus.LOC_PROT_ERR
        wanted = [(GOOD, WCStatus.SUCCESS), (BAD, status)]
        wanted += [(wr_id, WCStatus.WR_FLUSH_ERR) for wr_id in (BEHIND, BEHIND_IMM, LATE)]
        if name == "QP without permission":
            del wanted[0]
        assert completions == wanted, f"{name}: {completions}"


def side_a(pair, a, b, shared):
    a.mr.write(a.data)
    a.endpoint.mr.write(shared["file"])
    try:
        check(misbehave(a, b))
        send_file(a.endpoint, b.endpoint.offer, message_bytes=8192, timeout_ns=TIMEOUT_NS)
        # The number of a QP that failed can be used again.
        qp = a.qps.pop("wrong tag")
        qp.close()
        shared["again"] = a.new_qp()
        pair.until("a", lambda: "other" in shared)
        shared["again"].connect(shared["other"].connection)
        pair.until("a", lambda: "ready" in shared)
        shared["again"].post_send(request(a, GOOD, (a.mr.buf, a.mr.lkey), (b.mr.buf, b.mr.rkey), len(a.data),
                                          WROpcode.RDMA_WRITE_WITH_IMM))
        (wc,) = a.cq.wait(1, TIMEOUT_NS)
        assert (wc.wr_id, wc.status) == (GOOD, WCStatus.SUCCESS)
    finally:
        shared["done"] = True


def side_b(pair, a, b, shared):
    receive_file(b.endpoint, timeout_ns=TIMEOUT_NS)
    pair.until("b", lambda: "again" in shared or "done" in shared)
    for name, qp in b.qps.items():
        refused = name in REMOTE
        assert (qp.qp_state is QPState.ERR) == refused, name
    flushed = b.cq.take(64)[1]
    assert sorted(wc.qp_num for wc in flushed) == sorted(b.qps[name].qp_num for name in REMOTE)
    assert {wc.status for wc in flushed} == {WCStatus.WR_FLUSH_ERR}
    b.qps.pop("wrong tag").close()
    other = shared["other"] = b.new_qp()
    pair.until("b", lambda: "again" in shared)
    other.connect(shared["again"].connection)
    other.post_recv(RecvWR(wr_id=8))
    shared["ready"] = True
    pair.until("b", lambda: "done" in shared)
    assert b.endpoint.mr.read(FILE_BYTES, 0) == shared["file"]
    assert b.mr.read(len(a.data), 0) == a.data
    for mr in (b.read_only, b.other_mr):
        assert mr.read(mr.length, 0) == bytes(mr.length)
    drops = pair.new_drops("b")
    # All packets of 5000-byte requests count, except those inside the MR; retransmissions may add some.
    for reason, least in (("bad_key", 20), ("out_of_range", 2), ("wrong_pd", 5), ("no_permission", 10)):
        assert drops.get(reason, 0) >= least, drops


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def refused_requests(dut):
    rng = random.Random(bench_seed())
    pair = HostilePair(dut, ContextConfig(probe_timeout_ns=40_000), delay_ns=FAR_NS)
    await pair.start()
    names = REMOTE + LOCAL
    a = await bridge(Party)(pair, "a", names, rng)
    b = await bridge(Party)(pair, "b", names, rng)
    await bridge(connect)(a, b)
    shared = {"file": rng.randbytes(FILE_BYTES)}
    task = cocotb.start_soon(bridge(side_a)(pair, a, b, shared))
    await bridge(side_b)(pair, a, b, shared)
    await task
    for party in (a, b):
        await bridge(party.close)()
    pair.finish()
