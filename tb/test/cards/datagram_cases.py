"""UD queue pairs of two RTL cards: datagrams of all sizes, multicast packets, and frames that the driver drops."""

import random

import cocotb
from cocotb.task import bridge

from weft.driver.datagram import packet
from weft.driver.terms.enums import WCOpcode, WCStatus
from weft.driver.verbs.context import ContextConfig
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.test.driver.verbs.datagram_hosts import GROUP, QKEY, DatagramPair, group_gid

DELAY_NS, SIZES, SLOT = 500, (0, 1, 257, 4096), 8192


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def datagrams(dut):
    link = LinkConfig(delay_ns=DELAY_NS)
    pair = RtlPair(dut, EnvConfig(link, link), ContextConfig(nic_slot_log2=13), seed=bench_seed(), judged=False)
    await pair.start()
    await bridge(_run)(pair)
    for guard in pair.guards.values():
        guard.check()
    pair.env.finish()


def _run(pair):
    rng, scene = random.Random(bench_seed()), DatagramPair(pair=pair)
    for a, b, end in ((*scene.hosts, 1), (*scene.hosts[::-1], 0)):
        a.send(b.qp, b"wrong", qkey=QKEY ^ 1)
        for n, size in enumerate(SIZES):
            data = rng.randbytes(size)
            b.recv(n * SLOT, SLOT, wr_id=n)
            a.send(b.qp, data, imm=size)
            wcs = [wc for wc in scene.completions(end, 1) if wc.opcode is WCOpcode.RECV]
            assert [(wc.wr_id, wc.status, wc.src_qp, wc.imm_data) for wc in wcs] == [
                (n, WCStatus.SUCCESS, a.qp.qp_num, size)]
            assert b.received(wcs[0], n * SLOT)[1] == data
        scene.completions(1 - end, len(SIZES) + 1)
        assert b.context.counts["datagrams_with_wrong_qkey"] == 1
    a, b = scene.hosts
    b.qp.attach_mcast(group_gid())
    b.recv(0, SLOT)
    a.send(None, b"to the group", dest=(a.ah(GROUP), packet.MULTICAST_QPN))
    [got] = scene.completions(1, 1)
    assert b.received(got)[1] == b"to the group"
    scene.completions(0, 1)
    cocotb.log.info("datagrams and a multicast packet in %d us", pair.now_ns() / 1000)
    for host in scene.hosts:
        host.pd.close()
        host.cq.close()
