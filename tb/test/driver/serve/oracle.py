"""Random programs on the direct back end and on functional cards: ``python -m weft.tb.test.driver.serve.oracle [COUNT]
[SEED]``.

Both must give the same completions, memory, events and states to ``COUNT`` random requests, legal and illegal ones.
Each program connects a QP of one host with one of the other and posts lists of requests. The next list follows when all
requests of the last one are complete, so that the outcome does not depend on time. After a failure the memory that the
failed request names is undefined, and is not compared; the program connects its QPs again.

A program and its data follow from the seed of the program. Program ``n`` of a run has the seed ``SEED + n``: a run of
one request with that seed repeats it.
"""

import contextlib
import random
import sys
from collections import Counter
from dataclasses import dataclass, field, replace

from weft.driver.ibverbs.messages import Opcode
from weft.driver.ibverbs.rings import ASYNC_EVENT, RECV_SLOT, SEND_SLOT, SGE_SLOT, WC_SLOT
from weft.driver.send.sender import RNR_RETRY_FOREVER
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.terms.enums import QPState, QPType, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.qp_states import NOTHING
from weft.tb.verify.programs.local import EagerBackend, PolledBackend, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, VA, RawClient, Ring

COMMAND = ".venv/bin/python -m weft.tb.test.driver.serve.oracle {count} {seed}"
PAGES, DEPTH, SGES, INLINE, CQE, TURNS_MAX, ROUNDS = 20, 64, 3, 64, 256, 200_000, 24
BYTES, ZONE = PAGES * PAGE, 5 * PAGE
SOURCES, TARGETS, WORDS, RECEIVED = range(0, BYTES, ZONE)     # zones of the memory: only a fence orders accesses to one
ILLEGAL = 0.002                       # chance of each possible fault of a request
FETCHES = (WROpcode.RDMA_READ, WROpcode.ATOMIC_CMP_AND_SWP, WROpcode.ATOMIC_FETCH_AND_ADD)
SENDS = (WROpcode.SEND, WROpcode.SEND_WITH_IMM)
OPCODES, OPCODE_WEIGHTS = list(WROpcode)[:7], (4, 1, 1, 1, 1, 1, 1)      # writes take the fewest packets
CONSUMERS = (*SENDS, WROpcode.RDMA_WRITE_WITH_IMM)
LENGTHS = (0, 1, 7, 8, 64, 100, 1024, 1025, PAGE, 5000, 9000)
LENGTH_WEIGHTS = (6, 6, 6, 6, 6, 6, 3, 3, 1, 1, 1)     # each packet costs time
MTUS, MTU_WEIGHTS = range(1, 6), (1, 1, 4, 2, 6)       # 256 to 4096 bytes
REPORT_EVERY = 10_000
SHOWN = 5                             # differences that are printed
ANY_ERROR = WCStatus.GENERAL_ERR
RECEIVE = 1 << 40                     # bit of the wr_id of receive requests


@dataclass
class Sge:
    """Scatter-gather entry; ``key`` is a name of :meth:`End.key`."""

    at: int
    length: int
    key: str = "own"


@dataclass
class Send:
    """Send request; ``rkey`` is a name of a key of the peer."""

    wr_id: int
    opcode: WROpcode
    flags: int
    sges: list
    remote: int = 0
    rkey: str = "own"
    imm: int = 0
    operands: tuple = (0, 0)
    inline: bytes = b""


@dataclass
class Round:
    """Requests that end ``by`` posts to its send queue, and the receive requests of the other end."""

    by: int
    sends: list
    receives: list
    late: bool                        # the receive requests are posted after the send requests
    drains: bool                      # the end is in SQD when the requests are posted
    gone: bool                        # the other end is in RESET


@dataclass
class Program:
    """One connection and its rounds."""

    shared: bool
    access: int
    max_rd_atomic: int
    max_dest_rd_atomic: int
    rnr_retry: int
    mtu: int
    rounds: list = field(default_factory=list)

    def play(self, daemon, rng):
        """Execute the program; return the outcome of its rounds."""
        ends = [End(daemon, host, self.shared) for host in "ab"]
        for end in ends:
            end.mapping[:] = rng.randbytes(BYTES)
        connect(ends, self, rng)
        outcome = []
        for part in self.rounds:
            found, over = play_round(daemon, ends, part, self)
            outcome.append(found)
            if over and self.shared:      # an SRQ keeps receive requests, which depend on time
                break
            if over:
                connect(ends, self, rng)
        for end in ends:
            end.close()
        return outcome


# ------------------------------------------------------------------------------------------------------ generation

def chance(rng):
    return rng.random() < ILLEGAL


def some_sges(rng, length, zone, *, writable, after=None):
    """Return scatter-gather entries of ``length`` bytes, maybe with a fault: anywhere in a zone, or one ``after`` the
    other from there on."""
    sges, left, count = [], length, rng.randint(1, SGES)
    for n in range(count):
        part = left if n == count - 1 else rng.randint(0, left)
        sges.append(Sge(zone + (rng.randrange(ZONE - part + 1) if after is None else after + length - left), part))
        left -= part
    if chance(rng):
        sge = rng.choice(sges)
        fault = rng.randrange(5)
        if fault == 0:
            sge.key = "none"
        elif fault == 1:
            sge.key = "foreign"
        elif fault == 2 and writable:
            sge.key = "read-only"
        elif fault == 3:
            sge.at = BYTES - sge.length // 2
        else:
            sge.at = (1 << 64) - VA - sge.length // 2
    return sges


def some_send(rng, wr_id):
    opcode = rng.choices(OPCODES, OPCODE_WEIGHTS)[0]
    flags = sum(flag for flag in (SendFlags.FENCE, SendFlags.SOLICITED) if rng.random() < 0.3)
    flags |= SendFlags.SIGNALED * (rng.random() < 0.5)
    length = rng.choices(LENGTHS, LENGTH_WEIGHTS)[0] if rng.random() < 0.98 else rng.randrange(ZONE)
    if opcode in FETCHES[1:] and not chance(rng):
        length = 8
    own, remote = ((TARGETS, SOURCES) if opcode == FETCHES[0] else (RECEIVED, WORDS) if opcode in FETCHES
                   else (SOURCES, TARGETS))
    send = Send(wr_id, opcode, int(flags), some_sges(rng, length, own, writable=opcode in FETCHES),
                remote + rng.randrange((ZONE - length) // 8 + 1) * 8, imm=rng.getrandbits(32),
                operands=(rng.choice((0, rng.getrandbits(64))), rng.getrandbits(64)))
    if length <= INLINE and opcode not in FETCHES and rng.random() < 0.5 or chance(rng) and opcode in FETCHES:
        send.flags |= SendFlags.INLINE
        if opcode not in FETCHES:
            send.sges, send.inline = [], rng.randbytes(length)
    if opcode not in SENDS and chance(rng):
        fault = rng.randrange(5)
        if fault == 0:
            send.rkey = "none"
        elif fault == 1:
            send.rkey = "foreign"
        elif fault == 2:
            send.rkey = "local"
        elif fault == 3:
            send.remote += rng.choice((1, BYTES, 3))
        else:
            send.remote = (1 << 64) - VA - rng.choice((0, 4, 8))
    return send


def continued(rng, send, wr_id):
    """Return a small write that continues another one in both memories, maybe with a fault, or None."""
    if send.opcode != WROpcode.RDMA_WRITE or len(send.sges) != 1 or not 0 < send.sges[0].length <= 1025:
        return None
    (sge,) = send.sges
    if sge.at + 2 * sge.length > SOURCES + ZONE or send.remote + 2 * sge.length > TARGETS + ZONE:
        return None
    flags = send.flags ^ SendFlags.SIGNALED * (rng.random() < 0.5)
    return replace(send, wr_id=wr_id, flags=int(flags), sges=[replace(sge, at=sge.at + sge.length)],
                   remote=send.remote + sge.length, rkey="none" if chance(rng) else send.rkey)


def some_round(rng, program, first):
    sends, receives, used = [], [], 0
    for n in range(rng.randint(1, DEPTH)):
        send = continued(rng, sends[-1], first + n) if sends and rng.random() < 0.7 else None
        send = send or some_send(rng, first + n)
        if send.opcode in CONSUMERS:
            length = len(send.inline) or sum(sge.length for sge in send.sges)
            size = 0 if send.opcode not in SENDS else length // 2 if chance(rng) else length + rng.choice((0, 0, 5))
            if used + size > ZONE:      # receives of a list do not overlap: nothing orders accesses to their memory
                send.opcode, send.imm = WROpcode.RDMA_WRITE, 0
            else:
                receives.append((RECEIVE + first + n, some_sges(rng, size, RECEIVED, writable=True, after=used)))
                used += size
        sends.append(send)
    sends[-1].flags |= SendFlags.SIGNALED
    waits = program.rnr_retry == RNR_RETRY_FOREVER
    if receives and not waits and rng.random() < 0.2:
        receives.pop()
    return Round(rng.randrange(2), sends, receives, late=waits and rng.random() < 0.3, drains=rng.random() < 0.1,
                 gone=rng.random() < 0.02)


def some_program(rng):
    """Return a random program."""
    access = 15 if rng.random() < 0.95 else rng.randrange(16)
    program = Program(rng.random() < 0.3, access, *(rng.choices((4, 0), (30, 1))[0] for _ in range(2)),
                      rng.choice((1, RNR_RETRY_FOREVER)), rng.choices(MTUS, MTU_WEIGHTS)[0])
    first = 1
    for _ in range(ROUNDS):
        program.rounds.append(some_round(rng, program, first))
        first += len(program.rounds[-1].sends)
    return program


# ------------------------------------------------------------------------------------------------------- execution

class End(RawClient):
    """Program on one host, with memory and one QP that may take its receive requests from an SRQ."""

    qp_type = QPType.RC

    def __init__(self, daemon, host, shared):
        super().__init__(daemon, host)
        self.greet()
        self.pd, other = (self.call(Opcode.ALLOC_PD)[0].handle for _ in range(2))
        self.mapping, own = self.memory(PAGES, self.pd)
        self.other_mapping, foreign = self.memory(PAGES, other)
        self.quiet_mapping, quiet = self.memory(PAGES, self.pd, access=0)
        self.keys = {"own": own, "foreign": foreign, "read-only": quiet}
        made, (file,) = self.call(Opcode.CREATE_CQ, user=1, cqe=CQE)
        self.cq, self.completions, self.found = made.handle, Ring(file, made.slots, WC_SLOT.size_bytes), []
        srq, cap = 0, {"max_recv_wr": DEPTH, "max_recv_sge": SGES}
        if shared:
            answer, (file,) = self.call(Opcode.CREATE_SRQ, user=3, pd=self.pd, max_wr=DEPTH, max_sge=SGES)
            srq, self.receives = answer.handle, Ring(file, answer.slots, answer.slot_bytes)
        self.qp, files = self.call(
            Opcode.CREATE_QP, user=2, pd=self.pd, send_cq=self.cq, recv_cq=self.cq, srq=srq, qp_type=self.qp_type,
            sq_sig_all=0, max_send_wr=DEPTH, max_send_sge=SGES, max_inline_data=INLINE, **cap)
        self.sends = Ring(files[0], self.qp.send_slots, self.qp.send_slot_bytes)
        own_receives = Ring(files[1], self.qp.recv_slots, self.qp.recv_slot_bytes)
        if not shared:
            self.receives = own_receives
        self.posted, self.known = 0, QPState.RESET      # receive requests without completion, state of the QP

    def key(self, name, *, remote):
        """Return the key with a name: of the own region, of another PD's, of one without rights, or of none."""
        if name in ("none", "local"):
            return 0xFFFF_FF00 if name == "none" else self.keys["own"].lkey
        return self.keys[name].rkey if remote else self.keys[name].lkey

    def modify(self, goal, mask=NOTHING, **fields):
        self.call(Opcode.MODIFY_QP, handle=self.qp.handle, mask=Mask.STATE | mask, qp_state=goal, **fields)
        self.known = goal
        if goal == QPState.RESET:     # the library drops the completions of the QP
            self.completions.take()

    def connect(self, peer, program, psn, peer_psn):
        self.modify(QPState.INIT, Mask.PKEY_INDEX | Mask.PORT | Mask.ACCESS_FLAGS, port_num=1,
                    qp_access_flags=program.access)
        self.modify(QPState.RTR, Mask.AV | Mask.PATH_MTU | Mask.DEST_QPN | Mask.RQ_PSN | Mask.MAX_DEST_RD_ATOMIC
                    | Mask.MIN_RNR_TIMER, path_mtu=program.mtu, dest_qp_num=peer.qp.qp_num, rq_psn=peer_psn,
                    dgid=peer.welcome.gid, is_global=1, ah_port_num=1, hop_limit=1,
                    max_dest_rd_atomic=program.max_dest_rd_atomic, min_rnr_timer=6)
        self.modify(QPState.RTS, Mask.SQ_PSN | Mask.TIMEOUT | Mask.RETRY_CNT | Mask.RNR_RETRY | Mask.MAX_QP_RD_ATOMIC,
                    sq_psn=psn, timeout=8, retry_cnt=7, rnr_retry=program.rnr_retry,
                    max_rd_atomic=program.max_rd_atomic)

    def _packed(self, sges):
        return b"".join(SGE_SLOT.pack(addr=(VA + sge.at) % (1 << 64), length=sge.length,
                                      lkey=self.key(sge.key, remote=False)) for sge in sges)

    def post_sends(self, sends, peer):
        for one in sends:
            compare, swap = one.operands
            head = SEND_SLOT.pack(
                wr_id=one.wr_id, opcode=one.opcode, flags=one.flags, num_sge=len(one.sges), imm_data=one.imm,
                remote_addr=(VA + one.remote) % (1 << 64), rkey=peer.key(one.rkey, remote=True), compare_add=compare,
                swap=swap, inline_length=len(one.inline))
            self.sends.fill(head + (one.inline or self._packed(one.sges)))
        self.ring_bell()

    def post_receives(self, receives):
        for wr_id, sges in receives:
            self.receives.fill(RECV_SLOT.pack(wr_id=wr_id, num_sge=len(sges)) + self._packed(sges))
        self.posted += len(receives)
        self.ring_bell()

    def look(self):
        """Take the completions that are available."""
        for wc in self.completions.take():
            self.found.append((wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags, wc.vendor_err))
            self.posted -= wc.wr_id >= RECEIVE

    def query(self):
        """Return the state of the QP; ``known`` is that of the last change or query."""
        self.known = self.call(Opcode.QUERY_QP, handle=self.qp.handle)[0].qp_state
        return self.known

    def news(self):
        """Return the asynchronous events since the last call."""
        found = []
        while True:
            try:
                event = ASYNC_EVENT.unpack(self.events.recv(ASYNC_EVENT.size_bytes))
            except BlockingIOError:
                return found
            found.append((event.user, event.event_type))


def connect(ends, program, rng):
    """Connect the QPs of both ends, in any state, with random packet sequence numbers."""
    psns = [rng.getrandbits(24) for _ in ends]
    for end in ends:
        end.modify(QPState.RESET)
        end.posted = 0
    for n, end in enumerate(ends):
        end.connect(ends[1 - n], program, psns[n], psns[1 - n])


class Stuck(AssertionError):
    """Requests that did not complete."""


def until(daemon, ends, condition):
    for _ in range(TURNS_MAX):
        for end in ends:
            end.look()
        if condition():
            return
        daemon.turn()
    raise Stuck([end.found for end in ends])


def clear(memory, at, length):
    """Clear the part of a range that is inside a memory."""
    if 0 <= at < BYTES:
        end = min(BYTES, at + length)
        memory[at:end] = bytes(end - at)


def undefined(part, failed, ends):
    """Clear the memory that requests name from the failed one on: the later ones may have begun."""
    sender, receiver = ends[part.by], ends[1 - part.by]
    for send in (send for send in part.sends if send.wr_id >= failed):
        for sge in send.sges:
            clear(sender.mapping, sge.at, sge.length)
        if send.opcode not in SENDS:
            clear(receiver.mapping, send.remote, len(send.inline) or sum(sge.length for sge in send.sges))
    for _, sges in part.receives:
        for sge in sges:
            clear(receiver.mapping, sge.at, sge.length)


def play_round(daemon, ends, part, program):
    """Execute a round; return what the programs see of it, and whether a request failed."""
    sender, receiver = ends[part.by], ends[1 - part.by]
    if part.gone:
        receiver.modify(QPState.RESET)
        receiver.posted = 0
    if part.drains:
        sender.modify(QPState.SQD)
    if not part.late and not part.gone:
        receiver.post_receives(part.receives)
    sender.post_sends(part.sends, receiver)
    if part.drains:
        sender.modify(QPState.RTS)
    if part.late and not part.gone:
        daemon.turn()
        receiver.post_receives(part.receives)
    last = part.sends[-1].wr_id
    until(daemon, ends, lambda: any(found[0] == last for found in sender.found))
    failed = next((found for found in sender.found if found[1] != WCStatus.SUCCESS and found[0] < RECEIVE), None)
    states = [end.query() for end in ends]
    if states[1 - part.by] == QPState.ERR and not program.shared:
        until(daemon, ends, lambda: not receiver.posted)
    for _ in range(2):
        daemon.turn()
    if failed is not None:
        undefined(part, failed[0], ends)
    found = []
    for end in ends:
        end.look()
        sends = [wc for wc in end.found if wc[0] < RECEIVE]
        if part.gone:     # a card looks for the peer before it checks some requests, and finds another error
            sends = [(wr_id, status if status in (WCStatus.SUCCESS, WCStatus.WR_FLUSH_ERR) else ANY_ERROR, *rest)
                     for wr_id, status, *rest in sends]
        receives = [wc for wc in end.found if wc[0] >= RECEIVE]
        if program.shared and failed is not None:     # a later request that has begun consumes one of an SRQ, or not
            receives = [wc for wc in receives if wc[1] != WCStatus.WR_FLUSH_ERR]
        found.append((sends, receives, sorted(end.news()),
                      [bytes(mapping) for mapping in (end.mapping, end.other_mapping, end.quiet_mapping)]))
        end.found = []
    return (found, states), failed is not None or receiver.posted


def play(daemon, program, rng):
    """Execute a program; return the outcome of its rounds."""
    return program.play(daemon, rng)


@contextlib.contextmanager
def polled_daemon(backend_type):
    """Yield a daemon whose programs poll in its process; it must have no message at the end."""
    with local_daemon(backend_type=backend_type) as (daemon, printed):
        yield daemon
        assert not printed, printed


def check(count, seed, some=some_program, progress=lambda *numbers: None):
    """Execute programs that ``some(rng)`` returns on both back ends, until they have completed ``count`` requests.

    Return the statuses of completions, with their numbers, the number of send and receive requests, and ``{seed of a
    program: difference as a sentence}``. A receive request counts when it completes. ``progress(requests, differences,
    next seed)`` is called after each program.
    """
    statuses, executed, differences, own = Counter(), 0, {}, seed
    with polled_daemon(PolledBackend) as direct, polled_daemon(EagerBackend) as functional:
        while executed < count:
            ours, theirs = _outcomes((direct, functional), own, some)
            program = some(random.Random(own))
            if ours != theirs:
                differences[own] = _difference(program, ours, theirs)
            executed += sum(len(part.sends) + sum(len(receives) for _, receives, *_ in found)
                            for part, (found, _) in zip(program.rounds, theirs, strict=False))
            statuses.update(WCStatus(wc[1]).name for found, _ in theirs for sends, receives, *_ in found
                            for wc in (*sends, *receives))
            own += 1
            progress(executed, len(differences), own)
    return statuses, executed, differences


def _outcomes(daemons, seed, some):
    """Return the outcome of the program with a seed on each daemon."""
    try:
        for daemon in daemons:
            rng = random.Random(seed)
            yield play(daemon, some(rng), rng)
    except Exception as problem:
        problem.add_note(f"the program has the seed {seed}")
        raise


def _difference(program, ours, theirs):
    for n, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine != other:
            return f"round {n}: {'; '.join(_parts(mine, other))}; {program.rounds[n]}"
    return f"{len(ours)} rounds on the direct back end, {len(theirs)} on functional cards"


def _parts(mine, other):
    """Yield sentences about the parts of two outcomes that differ."""
    if mine[1] != other[1]:
        yield f"states {mine[1]} direct, {other[1]} functional"
    for end, (ours, theirs) in enumerate(zip(mine[0], other[0], strict=True)):
        for name, one, two in zip(("sends", "receives", "events"), ours, theirs, strict=False):
            if one != two:
                yield f"{name} of end {end}: {one} direct, {two} functional"
        for number, (one, two) in enumerate(zip(ours[3], theirs[3], strict=True)):
            if one != two:
                yield f"memory {number} of end {end} from byte {next(n for n in range(BYTES) if one[n] != two[n])} on"


class Progress:
    """Line after each :data:`REPORT_EVERY` requests, so that a long run may be stopped and continued."""

    def __init__(self):
        self.due = REPORT_EVERY

    def __call__(self, executed, differences, seed):
        if executed >= self.due:
            print(f"{executed} requests, {differences} differences; the next program has the seed {seed}", flush=True)
            self.due = executed + REPORT_EVERY


def main(count=10_000, seed=None, *, some=some_program, command=COMMAND):
    """Compare ``count`` requests, and print the outcome; exit with status 1 after a difference."""
    seed = random.randrange(1 << 32) if seed is None else int(seed)
    print("again:", command.format(count=count, seed=seed), flush=True)
    statuses, executed, differences = check(int(count), seed, some, Progress())
    for own, sentence in list(differences.items())[:SHOWN]:
        print(f"{command.format(count=1, seed=own)}: {sentence}")
    print(f"seed {seed}: {executed} requests, {len(differences)} programs with differences; completions: "
          + ", ".join(f"{number} {name}" for name, number in statuses.most_common()))
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
