"""Hostile programs: ``python -m weft.tb.verify.programs.hostile [COUNT] [SEED] [BACKEND]``.

A talker sends random messages, several at once. A poster writes random requests and numbers into its rings; it is
connected to a victim on the other host. Two other programs exchange data meanwhile. ``COUNT`` messages and ring
entries must leave the daemon running and the data of the others right. No byte outside of regions changes, and the
daemon keeps no descriptor, mapping or memory.
"""

import gc
import mmap
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from weft.driver.ibverbs.messages import MESSAGES, REQUEST, VERSION, Opcode
from weft.driver.ibverbs.rings import RECV_SLOT, SEND_SLOT, SGE_SLOT
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.terms.enums import QPState, SendFlags, WCStatus, WROpcode
from weft.tb.verify.programs.local import POLLED, left_over, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, SLOTS, VA, Disconnected, RawEnd, address_of

REPORT_EVERY = 10_000
COMMAND = ".venv/bin/python -m weft.tb.verify.programs.hostile {count} {seed}"
BATCH = 8                      # most messages or ring entries at once
TURNS = 4                      # of the daemon after new ring entries
WORKS_EVERY = 100              # messages and entries between two tests of the other programs
ODD = 0.004                    # chance of a random number or bit
OPCODES, ATOMICS = list(WROpcode)[:7], (WROpcode.ATOMIC_CMP_AND_SWP, WROpcode.ATOMIC_FETCH_AND_ADD)
GUARD = bytes(range(256)) * (PAGE // 256)
GROWN_MAX = 16 << 20           # bytes that the daemon may gain: caches of Python, no objects of programs
RINGS = ("sends", "receives", "completions")


def pair(daemon, kind=RawEnd):
    """Return two programs whose QPs are connected."""
    ends = kind(daemon, "a"), kind(daemon, "b")
    for end, peer in (ends, ends[::-1]):
        end.connect(peer)
    return ends


def works(a, b):
    """Assert that a write from ``a`` to ``b`` arrives."""
    data = random.randbytes(PAGE)
    a.mapping[:PAGE] = data
    a.write(b)
    assert a.completion().status == WCStatus.SUCCESS
    assert b.mapping[:PAGE] == data


def settle(daemon, clients):
    """Run the daemon until it has ``clients`` clients; without clients, all its accounts must be zero."""
    for _ in range(1000):
        if len(daemon.clients) == clients:
            assert clients or not any(daemon.account.has.values()), daemon.account.has
            return
        daemon.turn()
    raise AssertionError(f"{len(daemon.clients)} clients")


def clean(backend):
    """Assert that no resources are left on the cards."""
    for host, counts in left_over(backend).items():
        assert not any(counts), (host, counts)


def close_all(files):
    """Close received file descriptors."""
    for file in files:
        os.close(file)


class Guarded(RawEnd):
    """Program whose memory has a page on both sides that belongs to no region."""

    def __init__(self, daemon, host):
        super().__init__(daemon, host, cqe=4 * SLOTS)

    def _wait(self):
        """Let the daemon answer, without the round of the drivers that follows a call."""
        self.daemon.answer()

    def memory(self, pages, pd, access=15):
        self._whole = mmap.mmap(-1, (pages + 2) * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._whole[:PAGE] = self._whole[-PAGE:] = GUARD
        self.shared = self.share()
        keys = self.register(self.shared, address_of(self._whole) + PAGE, pages * PAGE, pd, access)
        return memoryview(self._whole)[PAGE:-PAGE], keys

    def untouched(self):
        """Assert that nothing has changed the memory outside of the region."""
        assert self._whole[:PAGE] == GUARD == self._whole[-PAGE:], "bytes outside of the region have changed"


# --------------------------------------------------------------------------------------------------------- messages

def output_by(rng, end):
    """Return a message: valid, valid with errors, or random."""
    opcode = rng.choice(list(Opcode))
    asked, _ = MESSAGES[opcode]
    handles = (end.pd, end.cq, end.qp.handle, 1, 2, 3)
    fields = {}
    for field in asked.fields:
        if not field.name.startswith("_"):
            some = rng.choice((rng.choice(handles), rng.randrange(8), rng.getrandbits(field.width)))
            fields[field.name] = min(some, (1 << field.width) - 1)
    data = bytearray(REQUEST.pack(version=VERSION, opcode=opcode) + asked.pack(**fields))
    data += rng.choice((b"", rng.randbytes(24), rng.randbytes(rng.randrange(200))))
    if rng.random() < 0.2:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del data[rng.randrange(1, len(data)):]
    return bytes(data)


class Talker:
    """Program that sends random messages, and begins again if the daemon drops it."""

    def __init__(self, daemon, rng):
        self._daemon, self._rng, self.end = daemon, rng, Guarded(daemon, "a")

    def attack(self, most):
        """Send up to ``most`` messages at once; return the numbers of those answered, refused, and dropped for."""
        found, rng, end = Counter(), self._rng, self.end
        count = min(most, BATCH)
        try:
            if rng.random() < 0.1:
                scramble(rng, end)
            for _ in range(count):
                end.send_message(output_by(rng, end))
            for _ in range(count):
                head, _, files = end.receive()
                close_all(files)
                found["refused" if head.status else "answered"] += 1
        except Disconnected:
            found["dropped"] += 1
            self.close()
            self.end = Guarded(self._daemon, "a")
        return found

    def close(self):
        self.end.untouched()
        self.end.close()


def scramble(rng, end):
    """Write a random word somewhere into one of the rings."""
    ring = getattr(end, rng.choice(RINGS))
    at = rng.randrange(len(ring.memory))
    ring.memory[at : at + 4] = rng.randbytes(4)[: len(ring.memory) - at]
    end.ring_bell()


# ------------------------------------------------------------------------------------------------------------ rings

def mostly(rng, value, bits):
    """Return a number, or rarely another one of ``bits`` bits."""
    if rng.random() >= ODD:
        return value
    return (value + rng.choice((-8, -1, 1, 8, 2 * PAGE, rng.getrandbits(bits)))) % (1 << bits)


def some_sges(rng, end, length, count):
    """Return scatter-gather entries, which mostly are inside of the memory."""
    return b"".join(SGE_SLOT.pack(
        addr=mostly(rng, VA + rng.randrange(2 * PAGE - length + 1), 64), length=mostly(rng, length, 32),
        lkey=mostly(rng, end.keys.lkey, 32)) for _ in range(count))


def request_by(rng, end, victim):
    """Return a send request, rarely with random numbers or bits."""
    opcode = rng.choice(OPCODES)
    length = 8 if opcode in ATOMICS else rng.choice((0, 8, 64, 100, PAGE))
    head = SEND_SLOT.pack(
        wr_id=rng.getrandbits(64), opcode=mostly(rng, opcode, 8), flags=mostly(rng, SendFlags.SIGNALED, 8),
        remote_addr=mostly(rng, VA + rng.randrange((2 * PAGE - length) // 8 + 1) * 8, 64),
        rkey=mostly(rng, victim.keys.rkey, 32), num_sge=mostly(rng, 1, 8), inline_length=mostly(rng, 0, 32),
        imm_data=rng.getrandbits(32), swap=rng.getrandbits(64))
    return damaged(rng, head + some_sges(rng, end, length, 2), end.sends.slot_bytes)


def receive_by(rng, end):
    """Return a receive request, rarely with random numbers or bits."""
    head = RECV_SLOT.pack(wr_id=rng.getrandbits(64), num_sge=mostly(rng, 1, 8))
    return damaged(rng, head + some_sges(rng, end, PAGE, 2), end.receives.slot_bytes)


def damaged(rng, data, slot_bytes):
    """Return the contents of a slot, rarely with an inverted bit."""
    data = bytearray(data[:slot_bytes])
    if rng.random() < ODD:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


class Poster:
    """Program that posts random requests to a victim, and begins again if the daemon drops it."""

    def __init__(self, daemon, rng):
        self._daemon, self._rng = daemon, rng
        self.end, self.victim = pair(daemon, Guarded)

    def attack(self, most):
        """Fill up to ``most`` slots of the rings; return the numbers of entries and of the programs that ended."""
        rng, end, victim = self._rng, self.end, self.victim
        found, count = Counter(), min(most, BATCH)
        found["entries"] = count
        try:
            for _ in range(rng.randrange(BATCH // 2)):
                victim.receives.fill(receive_by(rng, victim))
            victim.ring_bell()
            for _ in range(count):
                if rng.random() < 0.8:
                    end.sends.fill(request_by(rng, end, victim))
                else:
                    end.receives.fill(receive_by(rng, end))
            if rng.random() < 4 * ODD:
                scramble(rng, end)
            end.ring_bell()
            for _ in range(TURNS):
                self._daemon.turn()
            if any(map(full_or_failed, (end, victim))):
                self._connect_again()
        except Disconnected:
            found["ended"] += 1
            self.close()
            self.end, self.victim = pair(self._daemon, Guarded)
        return found

    def _connect_again(self):
        ends = self.end, self.victim
        for end in ends:
            end.call(Opcode.MODIFY_QP, handle=end.qp.handle, mask=Mask.STATE, qp_state=QPState.RESET)
            end.completions.take()
        for end, peer in (ends, ends[::-1]):
            end.connect(peer, rnr_retry=1)

    def close(self):
        for end in (self.end, self.victim):
            end.untouched()
            end.close()


def full_or_failed(end):
    """Take the completions of a program; return whether a request failed or a queue may be full after a further attack.

    Raises :class:`Disconnected` if the daemon dropped the program, or the numbers of its completions are random.
    """
    if end.disconnected or end.completions.waiting > end.completions.slots:
        raise Disconnected
    failed = any(wc.status != WCStatus.SUCCESS for wc in end.completions.take())
    return failed or any((ring.word("prod") - ring.word("done")) % (1 << 32) + BATCH > SLOTS
                         for ring in (end.sends, end.receives))


# --------------------------------------------------------------------------------------------------------- campaign

@dataclass
class Held:
    """Resources of this process, which the daemon runs in: open files, mappings of rings and bells, and memory."""

    descriptors: int
    mappings: int
    resident_bytes: int

    @classmethod
    def now(cls):
        gc.collect()
        return cls(len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("/memfd:"),
                   int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    def check(self):
        """Assert that the process has no more than it had; return the bytes that it gained."""
        now = Held.now()
        assert now.descriptors <= self.descriptors, f"{now.descriptors} open files, {self.descriptors} before"
        assert now.mappings <= self.mappings, f"{now.mappings} shared mappings, {self.mappings} before"
        grown = now.resident_bytes - self.resident_bytes
        assert grown <= GROWN_MAX, f"{grown} bytes more than before"
        return grown


class Campaign:
    """Attacks on a daemon with the list ``printed`` of its messages, while two other programs exchange data.

    Attributes
    ----------
    found : Counter
        Messages ``answered``, ``refused``, and ``dropped`` with their program; ring ``entries``, and programs that they
        ``ended``; ``exchanges`` of the other programs.
    grown : int
        Bytes of memory that the process gained after the first tenth.
    """

    def __init__(self, daemon, printed, rng):
        self._daemon, self._printed, self._rng = daemon, printed, rng
        self.found, self.grown = Counter(), 0
        self._good = pair(daemon, Guarded)

    @property
    def done(self):
        """Number of messages and ring entries."""
        return self.found.total() - self.found["ended"] - self.found["exchanges"]

    def attack(self, count, progress=lambda done: None):
        """Attack until ``count`` messages and entries were tried, by programs that end then."""
        talker, poster = attackers = [kind(self._daemon, self._rng) for kind in (Talker, Poster)]
        due = self.done
        while self.done < count:
            for one in attackers:
                if most := max(0, count - self.done):
                    self.found += one.attack(most)
            if self.done >= due:
                progress(self.done)
                self._look()
                due = self.done + WORKS_EVERY
        for one in (talker, poster):
            one.close()
        settle(self._daemon, len(self._good))

    def _look(self):
        """Check the data of the other programs, and what the daemon printed."""
        for sender, receiver in (self._good, self._good[::-1]):
            works(sender, receiver)
            sender.untouched()
            self.found["exchanges"] += 1
        assert not [sentence for sentence in self._printed if "unexpected" in sentence]
        assert not self._daemon.contained
        del self._printed[:]

    def run(self, count, progress=lambda done: None):
        """Attack, and check that the daemon keeps nothing: against what it has after the first tenth."""
        self.attack(count // 10, progress)
        held = Held.now()
        self.attack(count, progress)
        self._look()
        self.grown = held.check()
        for one in self._good:
            one.close()
        settle(self._daemon, 0)
        clean(self._daemon.backend)


def fuzz(daemon, printed, count, rng, progress=lambda done: None):
    """Run a :class:`Campaign` of ``count`` messages and ring entries; return it."""
    campaign = Campaign(daemon, printed, rng)
    campaign.run(count, progress)
    return campaign


def main(count=100_000, seed=None, backend="functional"):
    """Attack a daemon with a back end of :data:`POLLED`, and print the outcome."""
    seed, started = random.randrange(1 << 32) if seed is None else int(seed), time.monotonic()
    print("again:", COMMAND.format(count=count, seed=seed), backend, flush=True)

    def progress(done):
        if done >= progress.due:
            print(f"{done} messages and entries", flush=True)
            progress.due = done + REPORT_EVERY

    progress.due = REPORT_EVERY
    with local_daemon(backend_type=POLLED[backend]) as (daemon, printed):
        campaign = fuzz(daemon, printed, int(count), random.Random(seed), progress)
    found = campaign.found
    print(f"{backend}, seed {seed}: {campaign.done} messages and entries, {found['dropped'] + found['ended']} programs "
          f"dropped, {dict(found)}; nothing is left, {campaign.grown} bytes gained; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
