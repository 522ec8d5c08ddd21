"""The card in time as machine code beside the one in Python: random programs, hosts and losses by seed, and whether
everything a driver or a line can see of both is the same, bit by bit and nanosecond by nanosecond.

``python -m weft.tb.verify.calibrate.beside [RUNS [SEED [MESSAGES]]]`` compares so many.
"""

import random
import sys
from collections import Counter

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import MTU, AccessFlag, SendFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.mr import MR
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract.abi import INLINE_MAX
from weft.model.card.host import TimedDevice
from weft.model.card.machine.device import CompiledDevice
from weft.model.card.machine.machine import Machine
from weft.model.card.timing import HostTiming
from weft.model.functional.host import run_apps
from weft.model.link import EventLoop, Link, LinkConfig
from weft.tb.sim.flow.seed import drawn_seed

MEMORY_BYTES, WINDOW, SERVICE_NS, LIMIT_NS = 64 * 1024, 12, 20_000, 1 << 40


class Seen:
    """A host that notes what its driver writes and which interrupts come, each with its time."""

    def __init__(self, loop, **options):
        super().__init__(loop, **options)
        self.seen = []

    def _post(self, offset, value, *write):
        self.seen.append((float(self.loop.now_ns), offset, value))
        super()._post(offset, value, *write)

    def _interrupt(self, vector):
        self.seen.append((float(self.loop.now_ns), "interrupt", vector))
        super()._interrupt(vector)


class SeenTimed(Seen, TimedDevice):
    """With the card in Python."""


class SeenCompiled(Seen, CompiledDevice):
    """With the card as machine code."""


class Play:
    """One run.

    Parameters
    ----------
    seed : hashable
        Decides everything.
    compiled : bool
    messages : int
        Of each side that sends.

    Attributes
    ----------
    seen : dict
        Of each side: writes and interrupts, counters, what its link carried and lost, its memory in the end; and when
        that was.
    """

    def __init__(self, seed, compiled, messages):
        rng = self._rng = random.Random(f"beside {seed}")
        loop, host = EventLoop(), HostTiming(
            read_latency_ns=rng.choice([300, 1000]), read_jitter=rng.choice([0, 0.1, 0.9]),
            read_tail=rng.choice([0, 0, 0.01]), stall=rng.choice([0, 0, 0.1]), split_completions=rng.random() < 0.2,
            max_payload_bytes=rng.choice([128, 256, 512]), max_read_bytes=rng.choice([128, 512, 1024, 4096]))
        self.both, self.qps, self.messages = rng.random() < 0.5, rng.randint(1, 3), messages
        delay, loss = rng.choice([100, 5_000, 50_000]), rng.choice([0, 0.02, 0.2])
        reorder, corrupt = rng.choice([0, 0, 0, 0.1]), rng.choice([0, 0, 0, 0.05])
        Machine.frames, Machine.size = 4, 1 << 14       # so that it grows
        device_type = SeenCompiled if compiled else SeenTimed
        self.devices = [device_type(loop, seed=f"{seed} {side}", preset="test", host=host)
                        for side in range(2)]
        self.links = [Link(loop, self.devices[1 - side].card.receive,
                           LinkConfig(delay_ns=delay, loss=loss, reorder=reorder, corrupt=corrupt), f"{seed} {side}")
                      for side in range(2)]
        for device, link in zip(self.devices, self.links, strict=True):
            link.ahead = not reorder
            device.transmit = link.send
        self._seed, self._probe_ns = seed, 100_000 + 4 * delay
        self._life(loop)
        if rng.random() < 0.5:      # the cards are reset with packets under way
            for _ in range(3):
                self.ends[0].qps[0].post_send(self._request(rng, *self.ends))
            loop.run(loop.now_ns + rng.randrange(10_000))
            for device in self.devices:
                device.release(device._user)        # the drivers are killed
            self._life(loop)
        loop.run(loop.now_ns + 100_000)
        self.seen = {"end": float(loop.now_ns), "calls": loop.number}
        for side, device in enumerate(self.devices):
            link = self.links[side]
            self.seen[f"writes {side}"], self.seen[f"counters {side}"] = device.seen, +device.card.counters
            self.seen[f"memory {side}"] = self.ends[side].mr.read(2 * MEMORY_BYTES, 0)
            self.seen[f"link {side}"] = link.counters.as_dict()

    def _life(self, loop):
        """Drivers from their beginning until all messages are acknowledged."""
        rng = self._rng
        self.contexts = [Context(device, mac=0x02_0000_0000_01 + side, ip=0x0A00_0001 + side, config=ContextConfig(
            random=random.Random(f"{self._seed} {side}"), probe_timeout_ns=self._probe_ns, ring_log2=7,
            prefetch_depth=rng.choice([1, 2, 4]), prefetch_watermark=1)) for side, device in enumerate(self.devices)]
        for context, peer in zip(self.contexts, self.contexts[::-1], strict=True):
            context.neighbours.add(peer.ip, peer.mac)
        pages = {} if rng.random() < 0.7 else {"page_bytes": 2 << 20}
        self.ends = [Endpoint(context, 2 * MEMORY_BYTES, qps=self.qps, window=WINDOW, inline=INLINE_MAX, **pages,
                              memory=(context.device.alloc(2 * MEMORY_BYTES, contiguous=False, **pages)
                                      if pages else None))
            for context in self.contexts]
        for end, peer in (self.ends, self.ends[::-1]):
            end.connect(peer.connections, path_mtu=rng.choice(list(MTU)), timeout=22)
        self._done = set()
        run_apps(loop, [(self.devices[side], lambda side=side: self._program(side)) for side in range(2)], LIMIT_NS)

    def _program(self, side):
        """Send at random, register other memory now and then; receive until the other one is through."""
        end, rng = self.ends[side], random.Random(f"{self._rng.random()} {side}")
        end.mr.write(rng.randbytes(MEMORY_BYTES), offset=0)
        for qp in end.qps:
            for number in range(4):
                qp.post_recv(RecvWR(wr_id=number))
        left = self.messages if side == 0 or self.both else 0
        others, under_way = [], Counter()
        while left or sum(under_way.values()):
            qp = rng.choice(end.qps)
            while left and under_way[qp.qp_num] < WINDOW - 2:
                left -= 1
                under_way[qp.qp_num] += 1
                qp.post_send(self._request(rng, end, self.ends[1 - side]))
            if rng.random() < 0.1:
                others.append(MR(end.pd, rng.randint(1, 9000), AccessFlag.LOCAL_WRITE))
            if others and rng.random() < 0.1:
                others.pop(0).close()
            for wc in end.cq.wait(8):
                if wc.status is not WCStatus.SUCCESS:
                    raise AssertionError(f"QP {wc.qp_num}: {wc.status.name}")
                if wc.opcode == WCOpcode.RECV_RDMA_WITH_IMM:
                    next(qp for qp in end.qps if qp.qp_num == wc.qp_num).post_recv(RecvWR(wr_id=0))
                else:
                    under_way[wc.qp_num] -= 1
        self._done.add(side)
        while len(self._done) < 2:
            end.context.progress()
            for wc in end.cq.poll(8)[1]:
                next(qp for qp in end.qps if qp.qp_num == wc.qp_num).post_recv(RecvWR(wr_id=0))
            end.context.wait(SERVICE_NS)

    @staticmethod
    def _request(rng, end, peer):
        offer = peer.offer
        length = rng.choice([0, 1, rng.randint(1, INLINE_MAX), rng.randrange(300), rng.randrange(5000),
                             rng.randrange(40_000)])
        flags = SendFlags.INLINE if length <= INLINE_MAX and rng.random() < 0.7 else 0
        there, here = rng.randrange(MEMORY_BYTES - length), rng.randrange(MEMORY_BYTES - length)
        immediate = rng.random() < 0.3
        wr = SendWR(wr_id=0, num_sge=1, sg=[SGE(end.mr.buf + here, length, end.mr.lkey)],
                    opcode=WROpcode.RDMA_WRITE_WITH_IMM if immediate else WROpcode.RDMA_WRITE,
                    send_flags=SendFlags.SIGNALED | flags, imm_data=length)
        wr.set_wr_rdma(offer.rkey, offer.va + MEMORY_BYTES + there)
        return wr


def compare(seed, messages):
    """What differs between both in a run of this seed, sentences; and the seen of one of them."""
    ours, theirs = (Play(seed, compiled, messages).seen for compiled in (True, False))
    found = []
    for name, seen in ours.items():
        if seen != theirs[name]:
            at = ""
            if name.startswith("writes"):
                place = next((k for k, pair in enumerate(zip(seen, theirs[name], strict=False)) if pair[0] != pair[1]),
                             min(len(seen), len(theirs[name])))
                at = f": {seen[place:place + 1]} and {theirs[name][place:place + 1]} at {place}"
            found.append(f"{name} of seed {seed} differ{at}")
    return found, ours


def main(arguments):
    """Compare so many runs; the exit status."""
    runs = int(arguments[0]) if arguments else 20
    seed = int(arguments[1]) if len(arguments) > 1 else drawn_seed(__name__)
    messages = int(arguments[2]) if len(arguments) > 2 else 12
    total, wrong = Counter(), []
    for number in range(seed, seed + runs):
        found, seen = compare(number, messages)
        wrong += found
        for side in range(2):
            total.update(seen[f"counters {side}"])
    print(f"{runs} runs from seed {seed} on: {total['tx_packets']} packets, {total['tx_retransmissions']} of them "
          f"again, {total['rx_packets']} taken, {total['holes']} holes, {total['rx_late_originals']} late")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
