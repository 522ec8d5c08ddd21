"""Bad input from the host: descriptors, doorbells, commands and nodes that break the rules. The card continues."""

import random
from types import SimpleNamespace

import cocotb
from cocotb.task import bridge

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import QPState
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.hdl.contract import abi
from weft.hdl.contract.abi import CommandOpcode, CommandStatus, Reason, ReportKind, Ring
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.test.cards.hostile_pair import HostilePair

FILE_BYTES = 30_000
TIMEOUT_NS = 2_000_000
RING_LOG2 = 4
WAIT_NS = 6_000           # until a descriptor is fetched, rejected and reported
NOWHERE = 0x7000_0000     # without memory


def doorbell(context, register, layout, **fields):
    """Write a doorbell word."""
    context.device.write64(abi.REGISTER[register].offset, int.from_bytes(layout.pack(**fields), "little"))


class Card:
    """Card A; the bench writes its rings directly."""

    def __init__(self, pair):
        self.pair, self.context = pair, pair.contexts["a"]
        self.endpoint = Endpoint(self.context, FILE_BYTES)
        self.pd = PD(self.context)
        self.qps = [QP(self.pd, rc_init_attr(self.endpoint.cq, max_send_wr=4))
                    for _ in range(5)]

    @property
    def frames(self):
        return self.pair.env.sides["a"].mac_tx.frames

    def state(self):
        """Return the state that a rejected descriptor must not change."""
        return SimpleNamespace(frames=self.frames, reports=self.context.engine.reports.counts.copy())

    def settle(self):
        self.pair.sleep(WAIT_NS)
        for _ in range(3):
            self.context.progress()

    def work(self, **changes):
        """Return a WORK entry that is valid except for the changes."""
        qp, mr = self.qps[0], self.endpoint.mr
        return abi.WORK.pack(**{
            "opcode": abi.WorkOpcode.WRITE, "pmtu": 3, "sqpn": qp.index, "dqpn": qp.attr.dest_qp_num,
            "local_va": mr.buf, "lkey": mr.rkey, "remote_va": 0x1000, "rkey": 0, "length": 100, "psn": 77,
            "dst_mac": qp.engine.path.mac, "dst_ip": qp.engine.path.ip, "sport": 0xC000} | changes)

    def push(self, ring, entry, spoil_phase=False):
        """Write an entry into a ring, and ring the doorbell."""
        ring = self.context.rings[ring]
        at = ring.push(entry) % ring.depth * abi.BLOCK_BYTES
        if spoil_phase:
            ring.store()
            ring.buffer.write(at, bytes([ring.buffer.read(at, 1)[0] ^ 1]))
        ring.ring_doorbell()


def descriptors(card):
    """Yield name, changes of a WORK entry, reason."""
    mr, other = card.endpoint.mr, card.pd
    assert other.handle != card.endpoint.pd.handle
    for opcode in (0, 4, 15):
        yield f"opcode {opcode}", {"opcode": opcode}, Reason.BAD_DESCRIPTOR
    for pmtu in (0, 6, 7):
        yield f"PMTU {pmtu}", {"pmtu": pmtu}, Reason.BAD_DESCRIPTOR
    for length in (abi.INLINE_MAX + 1, abi.CHUNK_MAX):
        yield f"{length} bytes inline", {"length": length, "inline": 1}, Reason.BAD_DESCRIPTOR
    for qpn in (16, 0xFF_FFFF):
        yield f"QPN {qpn:#x}", {"sqpn": qpn}, Reason.BAD_DESCRIPTOR
    for qpn in (0, 15):
        yield f"QP {qpn}", {"sqpn": qpn}, Reason.UNKNOWN_QP
    own = {"sqpn": card.endpoint.qps[0].index}     # its domain is the MR's, and no driver is notified
    yield "wrong tag", {"lkey": mr.rkey ^ 1}, Reason.BAD_KEY
    yield "no such MR", {"lkey": 29 << 8}, Reason.BAD_KEY
    yield "MR of another domain", {}, Reason.WRONG_PD
    for name, va, length in (("before", -1, 100), ("over the end", FILE_BYTES - 99, 100), ("behind", FILE_BYTES, 1),
                             ("longer than the MR", 0, FILE_BYTES + 10_000)):
        yield name, {"local_va": mr.buf + va, "length": length, **own}, Reason.OUT_OF_RANGE
    yield "wrapping", {"local_va": (1 << 64) - 50, **own}, Reason.OUT_OF_RANGE


def bad_descriptors(card):
    pair, tried = card.pair, 0
    reports = card.context.engine.reports
    find_qp, reports.find_qp = reports.find_qp, lambda *_: None   # the driver ignores the reports
    for ring, retransmit in ((Ring.SEND, 0), (Ring.RETRANSMIT, 1)):
        for name, changes, reason in descriptors(card):
            before = card.state()
            card.push(ring, card.work(**changes, retransmit=retransmit))
            card.settle()
            after, drops = card.state(), pair.new_drops("a")
            # Valid packets before the first bad one are sent: the descriptor is rejected at the bad packet.
            sent = FILE_BYTES // 1024 + 1 if name == "longer than the MR" else 0
            assert drops == {reason.name.lower(): 1}, f"{ring.name}, {name}: {drops}"
            assert after.reports["TX_ERROR"] == before.reports["TX_ERROR"] + 1, f"{ring.name}, {name}"
            assert after.frames - before.frames <= sent, f"{ring.name}, {name}: frames were sent"
            assert card.context.rings[ring].space == 1 << RING_LOG2, f"{ring.name}, {name}: not retired"
            tried += 1
        before = card.state()
        card.push(ring, card.work(), spoil_phase=True)
        card.settle()
        assert pair.new_drops("a") == {"bad_descriptor": 1} and card.frames == before.frames, ring.name
        assert card.context.rings[ring].space == 1 << RING_LOG2
    reports.find_qp = find_qp
    assert tried > 2 * (1 << RING_LOG2), "the rings wrapped"


def bad_doorbells(card):
    pair, context = card.pair, card.context
    for name in ("SEND", "RETRANSMIT", "NIC_TX", "COMMAND"):
        ring = context.rings[Ring[name]]
        register = abi.REGISTER[f"{name.lower()}_prod"].offset
        assert ring.prod == ring.cons
        for value in (ring.prod + ring.depth + 1, ring.prod + 2 * ring.depth - 1):   # too many; backwards
            context.device.write32(register, value % (2 * ring.depth))
            pair.sleep(200)
            assert pair.new_drops("a") == {"bad_descriptor": 1}, (name, value)
            card.settle()
    for name in ("META_REPORT", "NIC_RX", "RESPONSE"):
        ring = context.rings[Ring[name]]
        register = abi.REGISTER[f"{name.lower()}_cons"].offset
        context.device.write32(register, (ring.prod + 3) % (2 * ring.depth) | 1 << abi.ARM_BIT)
        pair.sleep(200)
        assert pair.new_drops("a") == {"bad_descriptor": 1}, name
    # The two words of the Adamap, for QPs that do not exist or have another generation.
    live = card.endpoint.qps[0]
    for qpn, generation in ((15, 0), (0, 1), (1 << 20, 0), (live.index, (live.generation + 1) % 256)):
        doorbell(context, "link_doorbell", abi.LINK_DOORBELL, qpn=qpn, generation=generation, nodes=5)
        doorbell(context, "cum_doorbell", abi.CUM_DOORBELL, qpn=qpn, generation=generation, psn=0x1234)
    card.settle()
    assert pair.new_drops("a") == {}


def bad_commands(card):
    pair, context = card.pair, card.context
    mr, qp = card.endpoint.mr, card.qps[0]
    cases = [(opcode, {}, CommandStatus.BAD_OPCODE) for opcode in (0, 11, 127)]
    cases += [
        (CommandOpcode.QP_DESTROY, {"qpn": qp.qp_num ^ 1 << 20}, CommandStatus.BAD_INDEX),
        (CommandOpcode.QP_MODIFY, {"qpn": qp.qp_num ^ 1 << 4, "qp_state": 6}, CommandStatus.BAD_INDEX),
        (CommandOpcode.QP_CREATE, {"qpn": qp.qp_num}, CommandStatus.IN_USE),
        (CommandOpcode.QP_DESTROY, {"qpn": 15}, CommandStatus.BAD_INDEX),
        (CommandOpcode.QP_QUERY, {"qpn": 0xFF_FFFF}, CommandStatus.BAD_INDEX),
        (CommandOpcode.QP_MODIFY, {"qpn": qp.qp_num, "qp_state": 1}, CommandStatus.BAD_VALUE),
        (CommandOpcode.MR_CREATE, {"mr_index": 32}, CommandStatus.BAD_INDEX),
        (CommandOpcode.MR_CREATE, {"mr_index": mr.index, "length": 1}, CommandStatus.IN_USE),
        (CommandOpcode.MR_CREATE, {"mr_index": 9, "va": (1 << 64) - 10, "length": 11}, CommandStatus.BAD_VALUE),
        (CommandOpcode.MR_CREATE, {"mr_index": 9, "length": 1 << 48}, CommandStatus.BAD_VALUE),
        (CommandOpcode.MR_CREATE, {"mr_index": 9, "length": 4097, "pte_index": 4095}, CommandStatus.BAD_VALUE),
        (CommandOpcode.MR_DESTROY, {"mr_index": 9}, CommandStatus.BAD_INDEX),
        (CommandOpcode.PAGE_TABLE_WRITE, {"count": 513}, CommandStatus.BAD_VALUE),
        (CommandOpcode.PAGE_TABLE_WRITE, {"count": 2, "pte_index": 4095}, CommandStatus.BAD_INDEX),
        (CommandOpcode.EXTENT_SET, {"extent": 8, "length": 64}, CommandStatus.BAD_INDEX),
        (CommandOpcode.EXTENT_SET, {"extent": 7, "length": 63}, CommandStatus.BAD_VALUE),
        (CommandOpcode.EXTENT_SET, {"extent": 7, "length": 64}, CommandStatus.BAD_VALUE),
        (CommandOpcode.STATISTICS, {"address": 8}, CommandStatus.BAD_VALUE),
    ]
    answers = []
    for opcode, fields, _ in cases:
        context.commands.submit(opcode, answers.append, **fields)
    context.run_until(lambda: len(answers) == len(cases), TIMEOUT_NS)
    for (opcode, fields, status), answer in zip(cases, answers, strict=True):
        assert answer.status is status, f"{opcode} {fields}: {answer.status}"
    card.push(Ring.COMMAND, abi.COMMAND.pack(opcode=CommandOpcode.STATISTICS, address=NOWHERE), spoil_phase=True)
    context.rings[Ring.COMMAND].advance(context.rings[Ring.COMMAND].cons + 1)   # there is no response
    assert pair.new_drops("a") == {"bad_descriptor": 1}


def bad_inline_frames():
    """Yield names and the entries of frames of which the card sends none."""
    opcode = abi.NicTxOpcode

    def head(length, number=0):
        return abi.NIC_TX_INLINE.pack(opcode=opcode.INLINE, length=length, number=number)

    rest = abi.NIC_TX_DATA.pack(opcode=opcode.DATA)
    for length in (0, 13, abi.FRAME_INLINE_MAX + 1, 65535):
        yield f"{length} bytes", [rest, head(length)]
    yield "rest missing", [head(abi.FRAME_HEAD_BYTES + 1)]
    yield "rest of another frame", [rest, head(74, 1)]
    for unknown in (3, 15):
        yield f"opcode {unknown}", [abi.NIC_TX.pack(opcode=unknown, length=60)]


def bad_raw_frames(card):
    pair, context = card.pair, card.context
    frames = card.frames
    for length in (0, 13, 9217, 65535):
        card.push(Ring.NIC_TX, abi.NIC_TX.pack(address=context.engine.nic.tx_slots.physical(0), length=length))
        card.settle()
        assert pair.new_drops("a") == {"bad_descriptor": 1}, length
    for name, bad in bad_inline_frames():
        for entry in bad:
            card.push(Ring.NIC_TX, entry)
        card.settle()
        assert pair.new_drops("a") == {"bad_descriptor": 1}, name
        assert card.context.rings[Ring.NIC_TX].space == 1 << RING_LOG2, f"{name}: not retired"
    slot = context.engine.nic.tx_slots.physical(0)
    card.push(Ring.NIC_TX, abi.NIC_TX.pack(address=slot, length=60), spoil_phase=True)
    card.settle()
    assert pair.new_drops("a") == {"bad_descriptor": 1}
    host = pair.env.host("a")
    host.strict = False      # the host completes the read with an error
    card.push(Ring.NIC_TX, abi.NIC_TX.pack(address=NOWHERE, length=200))
    card.settle()
    assert pair.new_drops("a") == {"dma_error": 1}
    assert host.complaints, "nothing was read where no memory is"
    host.complaints.clear()
    host.strict = True
    assert card.frames == frames


def unreadable_payload(card):
    """Send payload from an absent page: its read ends with an error, and no frame is sent."""
    pair, context = card.pair, card.context
    qp, mr, host = card.qps[3], card.endpoint.mr, pair.env.host("a")
    page = context.device.alloc(abi.PAGE_4K, align=abi.PAGE_4K)
    page.write(0, (NOWHERE | abi.pte_damage(NOWHERE)).to_bytes(abi.PTE_BYTES, "little"))
    context.commands.call(CommandOpcode.PAGE_TABLE_WRITE, pte_index=4000, count=1, address=page.physical(0))
    context.commands.call(CommandOpcode.MR_CREATE, mr_index=20, key_tag=1, va=0, length=4096, access=0,
                          pd=card.pd.handle, pte_index=4000)
    host.strict, frames = False, card.frames
    card.push(Ring.SEND, card.work(sqpn=qp.index, lkey=20 << 8 | 1, local_va=10, length=900))
    card.settle()
    host.complaints.clear()
    host.strict = True
    drops = pair.new_drops("a")
    assert drops == {"dma_error": 1}, drops
    assert card.frames == frames and qp.qp_state is QPState.ERR
    context.commands.call(CommandOpcode.MR_DESTROY, mr_index=20)
    context.device.free(page)
    assert mr.read(10, 0)


def write_node(qp, next_line):
    """Write a node of one hole with which the QP's list begins; return its line and its bytes."""
    holes = qp.receiver.holes
    line, _ = holes._chain.link({
        "qpn": qp.index, "generation": qp.generation, "count": 1, "encoding": abi.Encoding.LIST,
        "base_psn": qp.attr.rq_psn, "rsn": 0})
    holes.pool.extents.link(line, next_line)
    return line, holes.pool.extents.read(line)


def linked(context, qp, nodes, line):
    """Ring the link doorbell; ``line`` is the reported line of the first node."""
    doorbell(context, "link_doorbell", abi.LINK_DOORBELL, qpn=qp.index, generation=qp.generation, nodes=nodes,
             block=context.knitting.extents.number(line))


def broken_lists(card):
    """Ring for invalid nodes: the QP fails, and nothing is read outside the knitting buffer."""
    context = card.context
    junk, stray, damaged = card.qps[1], card.qps[2], card.qps[4]
    errors = context.engine.reports.counts["QP_ERROR"]
    extent = next(iter(context.knitting.extents))
    linked(context, junk, 1, extent.base + extent.blocks - 1)
    card.settle()
    assert context.engine.reports.counts["QP_ERROR"] == errors + 1 and junk.receiver.broken is Reason.BAD_NODE
    assert junk.qp_state is QPState.ERR and card.pair.new_drops("a") == {"bad_node": 1}
    line, _ = write_node(stray, next_line=NOWHERE // abi.BLOCK_BYTES)
    linked(context, stray, 2, line)
    card.settle()
    assert context.engine.reports.counts["QP_ERROR"] == errors + 2 and stray.receiver.broken is Reason.BAD_POINTER
    assert stray.qp_state is QPState.ERR and card.pair.new_drops("a") == {"bad_pointer": 1}
    block, node = write_node(damaged, next_line=0)
    node = bytearray(node)
    node[abi.NODE.offset_of("count") // 8] ^= 2         # three holes, which is valid
    card.pair.env.host("a").memory.write(block * abi.BLOCK_BYTES, bytes(node))
    linked(context, damaged, 1, block)
    card.settle()
    assert context.engine.reports.counts["QP_ERROR"] == errors + 3 and damaged.receiver.broken is Reason.BAD_NODE
    assert damaged.qp_state is QPState.ERR and card.pair.new_drops("a") == {"bad_node": 1}


def side_a(card, peer, rng, done):
    try:
        data = rng.randbytes(FILE_BYTES)
        card.endpoint.mr.write(data)
        for attack in (bad_descriptors, bad_doorbells, bad_commands, bad_raw_frames, unreadable_payload, broken_lists):
            attack(card)
            card.pair.guards["a"].check()
        send_file(card.endpoint, peer.offer, timeout_ns=TIMEOUT_NS)
        return data
    finally:
        done.append(True)


def connect(card, peer):
    card.endpoint.connect(peer.connections)
    peer.connect(card.endpoint.connections)
    for qp in card.qps:
        qp.connect(peer.connections[0])
    post_receives(peer)


def close(card, peer):
    card.pd.close()
    for endpoint in (card.endpoint, peer):
        endpoint.close()
        blocks = endpoint.context.knitting.check()
        assert blocks["free"] == sum(blocks.values()), blocks


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def bad_host(dut):
    rng = random.Random(bench_seed())
    pair = HostilePair(dut, ContextConfig(ring_log2=RING_LOG2, probe_timeout_ns=50_000))
    await pair.start()
    card = await bridge(Card)(pair)
    peer = await bridge(Endpoint)(pair.contexts["b"], FILE_BYTES)
    await bridge(connect)(card, peer)
    done = []
    task = cocotb.start_soon(bridge(side_a)(card, peer, rng, done))

    def side_b():
        receive_file(peer, timeout_ns=10 * TIMEOUT_NS)
        pair.until("b", lambda: done)
    await bridge(side_b)()
    assert peer.mr.read(FILE_BYTES, 0) == await task
    assert ReportKind.QP_ERROR.name in pair.contexts["a"].engine.reports.counts
    await bridge(close)(card, peer)
    pair.finish()
