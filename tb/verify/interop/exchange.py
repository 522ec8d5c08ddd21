"""Requests between the guest's rxe and this side, with checks of the data on both sides."""

import collections
import random
import time
import zlib
from dataclasses import dataclass

from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.qp import RcAttr, SoftConnection, SoftQP
from weft.driver.terms.enums import MTU, AccessFlag, WCStatus, WROpcode
from weft.driver.verbs.addr import GID
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPConnection
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.pair.settings import ALL_ACCESS

from . import environments
from . import guest as linux

RECEIVE_BYTES, GUEST_BYTES = 4096, 1 << 20
RTS = 3
MULTIPLIER = 2654435761
# Counters of rxe (its hw_counters): those that are printed, and those that must stay 0.
COUNTED = {"rcvd_pkts": "packets taken", "out_of_seq_request": "out of sequence", "duplicate_request": "duplicates"}
NEVER = ("retry_exceeded_err", "retry_rnr_exceeded_err", "send_err")
W = WROpcode


def pattern(length, seed):
    """Return the bytes that the guest's ``fill`` makes."""
    return bytes((i * MULTIPLIER + seed & 0xFFFF_FFFF) >> 13 & 0xFF for i in range(length))


@dataclass
class Remote:
    """QP and memory of the guest."""

    qpn: int
    key: int
    address: int
    psn: int


class Talk:
    """Orders to the guest, with progress of the back end, which has ``guest`` and ``step()``, in between."""

    SENT_S = 300

    def __init__(self, environment):
        self.environment, self.guest = environment, environment.guest

    def ask(self, line):
        """Send an order; return the guest's answer."""
        return self.guest.ask(self.environment.step, line)

    def open(self, rng):
        """Create a new QP of the guest; return it."""
        return Remote(*map(int, self.ask("open").split()), psn=rng.getrandbits(24))

    def connect(self, remote, qpn, psn, mtu, timeout):
        """Connect the guest's QP to this side."""
        assert self.ask(f"connect {qpn} {psn} {remote.psn} {int(mtu)} {timeout} {environments.IP}") == "connected"

    def check(self, at, data):
        """Check that the guest's memory holds the given bytes."""
        assert int(self.ask(f"crc {at} {len(data)}")) == zlib.crc32(data), "the guest has other bytes"

    def post(self, opcode, at, length, address=0, key=0, a=0, b=0):
        """Post a request at the guest, and wait for its completion."""
        assert self.ask(f"post {int(opcode)} {at} {length} {address} {key} {a} {b}") == "posted"
        answer = self.ask(f"sent {self.SENT_S}")
        assert answer.startswith("success "), f"{W(opcode).name} of the guest: {answer}"

    def received(self):
        """Return (bytes, flags, immediate) of the guest's next receive."""
        answer = self.ask(f"received {self.SENT_S}")
        assert answer.startswith("success "), f"a receive of the guest: {answer}"
        _, _, length, flags, imm = answer.split()
        return int(length), int(flags), int(imm, 16)

    def counters(self):
        """Return the counters of rxe by name."""
        return collections.Counter({name: int(self.ask(f"counter {name}")) for name in (*COUNTED, *NEVER)})

    def verdict(self, before, timeout):
        """Check state and counters of rxe; return a sentence. ``before`` holds the counters at the beginning."""
        assert int(self.ask("state")) == RTS, "the guest's QP is in error"
        new = self.counters()
        new.subtract(before)
        assert new["rcvd_pkts"] and not any(new[name] for name in NEVER), f"rxe counted {dict(new)}"
        counted = ", ".join(f"{new[name]} {words}" for name, words in COUNTED.items())
        return f"rxe (time-out code {timeout}): in RTS, {counted}"

    def until(self, condition):
        """Step the back end until a condition holds."""
        end = time.monotonic() + self.SENT_S
        while not condition():
            self.environment.step()
            assert time.monotonic() < end, "it takes too long"


def soft_exchange(environment, *, length=60_000, sends=(0, 1, 1024, 3000), seed=0, mtu=MTU.MTU_1024, timeout=16,
                  guest_timeout=16):
    """Run every operation between the software endpoint and rxe, in both directions; return a sentence.

    ``length`` is that of a WRITE and of a READ, ``sends`` those of the SENDs, in bytes; the time-outs are in the
    encoding of the verbs.
    """
    rng, talk, soft = random.Random(seed), Talk(environment), environment.soft
    cq, mr = CQ(soft, 256), SoftMR(PD(soft), 4 * length + 65_536, ALL_ACCESS)
    qp = SoftQP(mr.pd, rc_init_attr(cq))
    remote, before = talk.open(rng), talk.counters()
    qp.connect(SoftConnection(remote.qpn, remote.psn, linux.MAC, linux.IP), RcAttr(path_mtu=mtu, timeout=timeout))
    talk.connect(remote, qp.qp_num, qp.psn, mtu, guest_timeout)
    done, inbox, words = [], 3 * length, 2 * length     # offsets of the inbox and of the atomic words, in both memories

    def post(opcode, count, at=0, to=0, add=0, swap=0, imm=0):
        qp.post_send(SendWR(len(done), opcode, sg=[SGE(mr.buf + at, count, mr.lkey)] if count else [], imm_data=imm,
                            rkey=remote.key, remote_addr=remote.address + to, compare_add=add, swap=swap))
        talk.until(lambda: len(cq))
        [wc] = cq.poll(9)[1]
        assert wc.status is WCStatus.SUCCESS, f"{opcode.name}: {wc.status.name}"
        done.append(opcode)

    # From this side to the guest.
    data = rng.randbytes(length)
    mr.write(data)
    post(W.RDMA_WRITE, length)
    talk.check(0, data)
    post(W.RDMA_READ, length, at=length)
    assert mr.read(length, length) == data, "READ of the guest's memory"
    for number, count in enumerate(sends):
        assert talk.ask(f"receive {number}") == "posted"
        post(W.SEND_WITH_IMM if number % 2 else W.SEND, count, imm=number + 77)
        size, flags, imm = talk.received()
        assert (size, bool(flags & 2), imm) == (count, bool(number % 2), number % 2 and number + 77)
        talk.check(GUEST_BYTES - RECEIVE_BYTES * (1 + number), data[:count])
    assert talk.ask(f"fill {words} 8 1") == "filled"
    value = int.from_bytes(pattern(8, 1), "little")
    for add in (1, 1 << 40, 5):
        post(W.ATOMIC_FETCH_AND_ADD, 8, at=words, to=words, add=add)
        assert int.from_bytes(mr.read(8, words), "little") == value
        value = (value + add) % (1 << 64)
    for compare, swap in ((value, 42), (value, 43)):
        post(W.ATOMIC_CMP_AND_SWP, 8, at=words, to=words, add=compare, swap=swap)
        assert int.from_bytes(mr.read(8, words), "little") == value
        value = swap if compare == value else value
    assert int(talk.ask(f"word {words}")) == value

    # From the guest to this side.
    theirs = pattern(length, seed & 0xFFFF)
    assert talk.ask(f"fill {length} {length} {seed & 0xFFFF}") == "filled"
    talk.post(W.RDMA_WRITE, length, length, mr.buf, mr.rkey)
    assert mr.read(length) == theirs, "WRITE of the guest"
    talk.post(W.RDMA_READ, 0, length, mr.buf, mr.rkey)
    talk.check(0, theirs)
    for number, count in enumerate(sends):
        qp.post_recv(RecvWR(number, sg=[SGE(mr.buf + inbox, RECEIVE_BYTES, mr.lkey)]))
        talk.post(W.SEND_WITH_IMM if number % 2 else W.SEND, length, count, a=number + 5)
        talk.until(lambda: len(cq))
        [wc] = cq.poll(9)[1]
        assert (wc.wr_id, wc.status, wc.byte_len) == (number, WCStatus.SUCCESS, count)
        assert mr.read(count, inbox) == theirs[:count] and wc.imm_data == (number % 2 and number + 5)
    mr.write((1000).to_bytes(8, "little"), words)
    talk.post(W.ATOMIC_FETCH_AND_ADD, words, 8, mr.buf + words, mr.rkey, 24)
    talk.post(W.ATOMIC_CMP_AND_SWP, words + 8, 8, mr.buf + words, mr.rkey, 1024, 7)
    assert [int(talk.ask(f"word {words + at}")) for at in (0, 8)] == [1000, 1024]
    assert int.from_bytes(mr.read(8, words), "little") == 7
    verdict, counts = talk.verdict(before, guest_timeout), soft.counts
    qp.close()
    mr.close()
    return f"{len(done)} requests to rxe, {4 + len(sends)} from it; {counts['resent']} packets sent again; {verdict}"


def card_writes(environment, *, messages=10, length=20_000, seed=0, guest_timeout=16, **attributes):
    """Write into the guest's memory over the card's hardware path; return a sentence. ``attributes``: of the QP."""
    rng, talk, context = random.Random(seed), Talk(environment), environment.context
    total = messages * length
    cq, mr = CQ(context, 64), MR(PD(context), total, AccessFlag.LOCAL_WRITE)
    qp = QP(mr.pd, rc_init_attr(cq))
    remote, before = talk.open(rng), talk.counters()
    talk.connect(remote, qp.connection.qpn, qp.connection.psn, MTU.MTU_1024, guest_timeout)
    qp.connect(QPConnection(remote.qpn, remote.psn, str(GID.of_ipv4(linux.IP))), path_mtu=MTU.MTU_1024, standard=True,
               **{"timeout": 18, "probe_timeout_ns": 20_000_000} | attributes)
    data = rng.randbytes(total)
    mr.write(data)
    assert talk.ask("receive 0") == "posted"
    for number in range(messages):
        last = number == messages - 1
        at = number * length
        qp.post_send(SendWR(number, W.RDMA_WRITE_WITH_IMM if last else W.RDMA_WRITE, imm_data=0xBEEF,
                            sg=[SGE(mr.buf + at, length, mr.lkey)], rkey=remote.key, remote_addr=remote.address + at))
    completions = []

    def finished():
        completions.extend(cq.poll(64)[1])
        return len(completions) == messages
    talk.until(finished)
    assert [(wc.wr_id, wc.status) for wc in completions] == [(n, WCStatus.SUCCESS) for n in range(messages)]
    assert talk.received()[2] == 0xBEEF
    talk.check(0, data)
    verdict, counts = talk.verdict(before, guest_timeout), qp.sender.counts
    output = f"{counts['packets']} packets by hardware, {counts['retransmissions']} sent again; {verdict}"
    qp.close()
    mr.close()
    return output
