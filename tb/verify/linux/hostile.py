"""Hostile machines beside honest ones.

``python -m weft.tb.verify.linux.hostile [--messages N] [--attackers N] [--seed S]``.

Two hosts exchange data all the time, while a hostile machine is started and killed again and again; partners of a host
disappear while it writes to them. The figures of :data:`ZERO` must be 0.
"""

import argparse
import contextlib
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from weft.driver.connection.connection import ResponseTimeout
from weft.driver.terms.enums import AccessFlag, SendFlags, WCStatus, WROpcode
from weft.driver.verbs import device_list
from weft.driver.verbs.config import ContextConfig
from weft.driver.verbs.context import Context
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.device import add_device, remove_device
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.model.functional.card import FunctionalCard
from weft.tb.app.machine.machine import Machine
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.linux.client import Client, guest_device
from weft.tb.verify.linux.hostile_guest import SECRET
from weft.tb.verify.linux.hostile_messages import fuzz, open_files

MESSAGES, ATTACKERS, PARTNERS = 100_000, 200, 5
MS, LIMIT_S = 1_000_000, 120
HONEST, VICTIM, HOSTILE, PARTNER = "abcd"
SIZE = 8192
CONFIG = {"probe_timeout_ns": 100 * MS, "silence_ns": 10_000 * MS, "extent_bytes": 1 << 16, "max_extents": 1,
          "command_timeout_ns": LIMIT_S * 1000 * MS,        # a loaded host keeps the server's thread waiting
          "cm_timeout": ResponseTimeout(response_timeout=16)}
ENDED = (WCStatus.RETRY_EXC_ERR, WCStatus.WR_FLUSH_ERR)


class Served:
    """Machine of four hosts, served by a thread of this process; watches the frames for secrets."""

    def __init__(self, folder, backend, seed):
        self.sentences, self.secrets, self.failure, self._ended = [], 0, None, threading.Event()
        settings = MachineSettings(hosts=(HONEST, VICTIM, HOSTILE, PARTNER), folder=str(folder), preset="test",
                                   backend=backend, seed=str(seed))
        self.machine, self.folder = Machine(settings, self.sentences.append), folder
        for link in self.machine.links.values():
            link.arrival_watchers.append(self._look)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _look(self, frame):
        self.secrets += SECRET in frame

    def _run(self):
        try:
            while not self._ended.is_set():
                self.machine.turn()
        except BaseException as error:
            self.failure = error

    def until(self, condition):
        """Wait for something; return whether it came."""
        end = time.monotonic() + LIMIT_S
        while not condition() and self.failure is None and time.monotonic() < end:
            time.sleep(0.005)
        return bool(condition())

    def close(self):
        self._ended.set()
        self._thread.join()
        self.machine.close()


class End:
    """Driver of a host with a QP and a memory region."""

    def __init__(self, served, host, number):
        self.client = Client(served.folder / f"{host}.sock")
        self.device = guest_device(self.client)
        self.name = add_device(self.device, mac=0x02_0000_0000_01 + number, ip=0x0A00_0001 + number,
                               config=ContextConfig(**CONFIG))
        self.context = Context(name=self.name)
        self.pd, self.cq = PD(self.context), CQ(self.context, 64)
        self.mr = MR(self.pd, 2 * SIZE, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)

    def qp(self):
        return QP(self.pd, rc_init_attr(self.cq, max_send_wr=16, max_recv_wr=16))

    def close(self):
        self.context.close()
        remove_device(self.name)
        self.device.close()
        self.client.close()

    def vanish(self):
        """End as a machine whose process is killed."""
        self.client.close()


def poll(ends, wanted):
    """Let drivers work until ``wanted`` completions came, in the order of ``ends``; None if they do not come."""
    found, end = [[] for _ in ends], time.monotonic() + LIMIT_S
    while any(len(each) < count for each, count in zip(found, wanted, strict=True)):
        for each, one in zip(found, ends, strict=True):
            each += one.cq.poll(16)[1]
        if time.monotonic() > end:
            return None
        time.sleep(0.0002)
    return found


class Traffic:
    """Writes with an immediate from one host to the other, forth and back, with random bytes."""

    def __init__(self, ends, seed):
        self.ends, self.rng, self.rounds, self.wrong = ends, random.Random(f"traffic {seed}"), 0, []
        self.qps = [end.qp() for end in ends]
        for qp, peer in zip(self.qps, self.qps[::-1], strict=True):
            qp.connect(peer.connection, timeout=18)

    def round(self):
        """Exchange data; note what is wrong."""
        for sender in (0, 1):
            to, data = 1 - sender, self.rng.randbytes(SIZE)
            source, target = self.ends[sender].mr, self.ends[to].mr
            source.write(data, SIZE, SIZE)
            self.qps[to].post_recv(RecvWR())
            wr = SendWR(self.rounds, WROpcode.RDMA_WRITE_WITH_IMM, sg=[SGE(source.buf + SIZE, SIZE, source.lkey)],
                        send_flags=SendFlags.SIGNALED, imm_data=self.rounds)
            wr.set_wr_rdma(target.rkey, target.buf)
            self.qps[sender].post_send(wr)
            found = poll(self.ends, (1, 1))
            if found is None or any(wc.status is not WCStatus.SUCCESS for each in found for wc in each) \
                    or target.read(SIZE, 0) != data:
                self.wrong.append(found)
        self.rounds += 1


def vanishing_partner(served, honest):
    """Write to a host that disappears; return a sentence if the requests do not end as they must."""
    partner = End(served, PARTNER, 3)
    qp, peer = honest.qp(), partner.qp()
    qp.connect(peer.connection, timeout=14)
    peer.connect(qp.connection, timeout=14)
    for number in range(8):
        wr = SendWR(number, WROpcode.RDMA_WRITE, sg=[SGE(honest.mr.buf, SIZE, honest.mr.lkey)],
                    send_flags=SendFlags.SIGNALED)
        wr.set_wr_rdma(partner.mr.rkey, partner.mr.buf)
        if number == 4:
            if not poll((honest,), (1,)):
                return "no write to the partner completes"
            partner.vanish()
            served.until(lambda: not len(served.machine.functions[PARTNER].dma))
        qp.post_send(wr)
    found = poll((honest,), (4,))
    qp.close()
    forget(partner)
    if found is None:
        return "requests to a host that disappeared do not end"
    bad = [wc for wc in found[0] if wc.status not in (WCStatus.SUCCESS, *ENDED)]
    return f"requests to a host that disappeared end with {bad}" if bad else ""


def forget(end):
    """Remove the driver of a host that disappeared, as the end of its process does: it cannot release anything."""
    device_list._devices.pop(end.name, None)
    device = end.device
    for file in (*device._events, device._alarm, device._memory.mapper.arena):
        os.close(file)


def guests(attackers, partners, seed, backend="functional", progress=lambda done: None):
    """Run hostile machines beside honest traffic; return figures by name."""
    cards, files = count_cards(), open_files()
    with tempfile.TemporaryDirectory(prefix="weft-hostile-") as folder:
        figures = _served(Path(folder), attackers, partners, seed, backend, progress)
    cards = count_cards() - cards       # first: it frees objects with descriptors
    return {**figures, "leaks": max(0, open_files() - files) + max(0, cards)}


def _served(folder, attackers, partners, seed, backend, progress):
    served = Served(folder, backend, seed)
    try:
        return _guests(served, attackers, partners, seed, progress)
    finally:
        served.close()


def count_cards():
    """Return the number of cards in memory: a reset makes another one, and must release the old one."""
    for _ in range(3):      # generators of cards are released in steps
        gc.collect()
    return sum(issubclass(type(each), FunctionalCard) for each in gc.get_objects())


def _guests(served, attackers, partners, seed, progress):
    ends = [End(served, host, number) for number, host in enumerate((HONEST, VICTIM))]
    traffic, bad = Traffic(ends, seed), []
    attacker = subprocess.Popen([sys.executable, "-m", "weft.tb.verify.linux.hostile_guest",
                                 served.folder / f"{HOSTILE}.sock", str(seed), str(attackers)],
                                stdout=subprocess.PIPE, text=True)
    try:
        while attacker.poll() is None and served.failure is None and not traffic.wrong:
            traffic.round()
            if partners and not traffic.rounds % 10:
                partners -= 1
                bad += filter(None, [vanishing_partner(served, ends[0])])
            progress(sum(f"{HOSTILE}.sock: a machine is connected" in one for one in served.sentences[-3 * attackers:]))
        traffic.round()
    finally:
        attacker.kill()
        output, _ = attacker.communicate()
    found = json.loads(output or "{}")
    hostile = served.machine.functions[HOSTILE]
    left = not served.until(lambda: not (len(hostile.dma) or hostile.dma.files or len(hostile.interrupts)))
    for end in ends:
        end.close()
    stops = [one for one in served.sentences if "the card stops" in one and "DmaLost" not in one]
    return {"attackers": attackers, "killed": found.get("killed", 0), "rounds": traffic.rounds,
            "unsupported": hostile.counters["unsupported_requests"], "deaths": int(served.failure is not None),
            "failed_traffic": len(traffic.wrong) + len(bad), "errors": found.get("errors", 1) + left,
            "wrong_bytes": found.get("wrong_bytes", 1) + served.secrets, "stops": len(stops),
            "first": str((traffic.wrong + bad + stops + [served.failure])[:2])}


ZERO = ("exceptions", "deaths", "stops", "failed_traffic", "wrong_bytes", "errors", "leaks")


def campaign(messages, attackers, partners, seed, progress=None):
    """Return (figures of messages, figures of guests)."""
    def shown(name, total):
        return partial(report_progress, progress, name, total=total) if progress else lambda done: None

    return (fuzz(messages, seed, shown(f"messages, seed {seed}", messages)),
            guests(attackers, partners, seed, progress=shown(f"hostile machines, seed {seed}", attackers)))


def measure(progress):
    """Return the rows of the benchmark."""
    seed = drawn_seed()
    found = campaign(MESSAGES, ATTACKERS, PARTNERS, seed, progress)
    conditions = f"seed {seed}"
    total = {name: sum(each.get(name, 0) for each in found) for name in ZERO}
    for each in found:
        if any(each.get(name) for name in ZERO):
            print(each["first"], file=sys.stderr)
    return [Row("machine_messages", "", found[0]["messages"], at_least=MESSAGES, conditions=conditions),
            Row("machine_attackers", "", found[1]["attackers"], at_least=ATTACKERS, conditions=conditions),
            Row("machine_rounds", "", found[1]["rounds"], at_least=1, conditions="of the honest hosts meanwhile"),
            *(Row(f"machine_{name}", "", value, at_most=0, conditions=conditions) for name, value in total.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--attackers", type=int, default=ATTACKERS)
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    seed = drawn_seed() if asked.seed is None else asked.seed
    found = campaign(asked.messages, asked.attackers, PARTNERS, seed)
    for each in found:
        print(", ".join(f"{name} {value}" for name, value in each.items() if name != "first" or value != "[None]"))
    with contextlib.suppress(BrokenPipeError):
        print(f"again: python -m weft.tb.verify.linux.hostile --messages {asked.messages} "
              f"--attackers {asked.attackers} --seed {seed}")
    return 1 if any(each.get(name) for each in found for name in ZERO) else 0


if __name__ == "__main__":
    raise SystemExit(main())
