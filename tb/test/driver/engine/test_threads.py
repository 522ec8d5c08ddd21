"""Several threads of a program on one card: one waits while another posts, with and without a progress thread."""

import random
import threading
import time
from contextlib import closing

import pytest

from weft.driver.engine.card_lock import CardLock
from weft.driver.terms.enums import AccessFlag, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.device import Context
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.model.functional.host import FunctionalDevice, connected_pair, run_apps
from weft.model.functional.live import LiveDevice
from weft.model.link import LinkConfig
from weft.model.loop import EventLoop

WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE
MESSAGES, LENGTH, THREADS = 40, 3000, 4


class End:
    """Program with one QP for each of its threads."""

    def __init__(self, device, number):
        self.context = Context(device, mac=0x02_0000_0000_01 + number, ip=0x0A00_0001 + number)
        self.pd = PD(self.context)
        self.mr = MR(self.pd, THREADS * LENGTH, WRITE)
        self.channels = [CompChannel(self.context) for _ in range(THREADS)]
        self.cqs = [CQ(self.context, 2 * MESSAGES, None, channel) for channel in self.channels]
        self.qps = [QP(self.pd, rc_init_attr(cq)) for cq in self.cqs]

    def write(self, peer, number, message):
        wr = SendWR(message, WROpcode.RDMA_WRITE_WITH_IMM, 1, message, [SGE(self.mr.buf, LENGTH, self.mr.lkey)])
        wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf + number * LENGTH)
        self.qps[number].post_send(wr)

    def wait(self, number, count):
        """Return ``count`` completions of a QP, waiting for an event whenever the CQ is empty."""
        cq, channel, found = self.cqs[number], self.channels[number], []
        while len(found) < count:
            cq.req_notify()
            if not (got := cq.poll(count)[1]):
                channel.get_cq_event(cq, timeout_ns=10**10)
                cq.ack_events(1)
            found += got
        return found


def check(completions):
    assert all(wc.status is WCStatus.SUCCESS for wc in completions)
    assert [wc.wr_id for wc in completions] == list(range(MESSAGES))


def test_one_thread_waits_while_another_posts():
    """In simulated time: on each host, two of three threads wait in their channels."""
    loop, devices, _ = connected_pair(seed=3, forward=LinkConfig(loss=0.02))
    ends = [End(device, i) for i, device in enumerate(devices)]
    for end, peer in zip(ends, ends[::-1], strict=True):
        for qp, other in zip(end.qps, peer.qps, strict=True):
            qp.connect(other.connection)
    ended = []

    def waiting(end, number):
        check(end.wait(number, MESSAGES))
        ended.append(number)

    def posting():
        for message in range(MESSAGES):
            for number in range(2):
                ends[0].write(ends[1], number, message)
            ends[0].context.wait(20_000)
        while len(ended) < 4:
            ends[0].context.serve(10_000)

    def receiving():
        for message in range(MESSAGES):
            for number in range(2):
                ends[1].qps[number].post_recv(RecvWR(message))
        while len(ended) < 4:
            ends[1].context.serve(10_000)

    apps = [(devices[0], posting), (devices[1], receiving)]
    apps += [(devices[i], lambda i=i, n=n: waiting(ends[i], n)) for i in range(2) for n in range(2)]
    run_apps(loop, apps, 10**10)
    for end in ends:
        end.context.close()


def test_threads_share_a_card_with_a_progress_thread():
    """Real threads: each posts and waits on a separate QP; only the progress thread serves the receiving side."""
    loop, start = EventLoop(), time.monotonic_ns()
    devices = [LiveDevice(loop, seed=i, start=start) for i in range(2)]
    for device, other in zip(devices, devices[::-1], strict=True):
        device.transmit = lambda frame, other=other: loop.call_in(500, other.card.receive, frame)
    ends = [End(device, i) for i, device in enumerate(devices)]
    for end, peer in zip(ends, ends[::-1], strict=True):
        end.context.start_progress()
        for qp, other in zip(end.qps, peer.qps, strict=True):
            qp.connect(other.connection, timeout=20)
    for number in range(THREADS):
        for message in range(MESSAGES):
            ends[1].qps[number].post_recv(RecvWR(message))
    results, failures = {}, []

    def program(number):
        try:
            rng = random.Random(number)
            for message in range(MESSAGES):
                ends[0].write(ends[1], number, message)
                if rng.random() < 0.2:
                    MR(ends[0].pd, 4096, WRITE).close()
            results[number] = ends[0].wait(number, MESSAGES) if number % 2 else [
                wc for _ in range(MESSAGES) for wc in ends[0].cqs[number].wait(1, timeout_ns=10**10)]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=program, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and len(results) == THREADS
    for number in range(THREADS):
        check(results[number])
        check(ends[1].wait(number, MESSAGES))
    for end in ends:
        end.context.close()
    assert not any(device.memory._pages for device in devices)


def test_waiting_thread_is_notified_when_its_object_is_closed():
    loop = EventLoop()
    device = LiveDevice(loop, seed=1, start=time.monotonic_ns())
    device.transmit = lambda frame: None
    context = Context(device, mac=2, ip=3)
    context.start_progress()
    channel = CompChannel(context)
    cqs = CQ(context, 4), CQ(context, 4, None, channel)
    reported, waits = [], [cqs[0].wait, channel.get_cq_event]

    def program(wait):
        try:
            wait()
        except ValueError as error:
            reported.append(str(error).partition(".")[0])

    threads = [threading.Thread(target=program, args=(wait,), daemon=True) for wait in waits]
    for thread in threads:
        thread.start()
    while any(thread.ident is None for thread in threads):
        time.sleep(1e-3)
    cqs[0].close()
    channel.close()
    for thread in threads:
        thread.join(60)
    assert sorted(reported) == ["the CQ is closed", "the completion channel is closed"]
    context.close()


def test_waiting_thread_releases_the_card():
    device = FunctionalDevice(EventLoop())
    with closing(device):
        lock, order, inside = CardLock(device), [], threading.Event()

        def other():
            with lock:
                order.append("other")
                inside.set()

        with lock, lock:
            thread = threading.Thread(target=other)
            thread.start()
            while not lock.wanted:
                time.sleep(1e-4)
            order.append("first")
            depth = lock.give_up()
            inside.wait(10)
            lock.take_back(depth)
            order.append("first again")
        thread.join(10)
    assert order == ["first", "other", "first again"] and not lock.wanted


def test_errors_and_the_time_limit_of_simulated_programs():
    loop = EventLoop()
    devices = [FunctionalDevice(loop, seed=side) for side in range(2)]

    def fails():
        devices[0].wait(1000)
        raise KeyError("found")

    def waits():
        while True:
            devices[1].wait(700)

    with pytest.raises(KeyError, match="found"):
        run_apps(loop, [(devices[0], fails), (devices[1], waits)], 10_000)
    with pytest.raises(TimeoutError, match="still run"):
        run_apps(loop, [(devices[1], waits)], 10_000)
    assert loop.now_ns == 11_000
