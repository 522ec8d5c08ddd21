"""Hostile machine in processes: ``python -m weft.tb.verify.linux.hostile_guest SOCKET SEED [ATTACKERS]``.

Each attacker is a process that connects, does harm, and is killed at a random time: it writes registers and descriptors
with random values, takes memory away under DMA, resets the card in flight, or sends random messages. Without ATTACKERS
one follows the other until the parent process ends. Then a line of JSON has the numbers of :class:`Attackers`.
"""

import array
import contextlib
import json
import mmap
import os
import random
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass

from weft.driver.vfio_user.messages import PAGE, READABLE, Command, Irq, IrqSet, Region
from weft.hdl.contract import abi, pci
from weft.tb.verify.linux.client import BOTH, Client, access_body, irq_body, memfd
from weft.tb.verify.linux.hostile_messages import MessageFuzz

SHARED, READ_ONLY, PRIVATE = range(32), range(32, 40), range(40, 64)      # pages; the last ones are never mapped
BASE = 0x7000_0000_0000
SECRET = b"\x5e\xc2\xe7 private page"       # 16 bytes, in memory that the card may not read
WRONG, ATTACK_S, MESSAGES = 99, 0.15, 300
MAC, IP = 0x02_0000_0000_03, 0x0A00_0003
PEERS = (0x0A00_0001, 0x0A00_0002)
COMMAND_REGISTER, DEVICE_CONTROL, FLR = 4, pci.EXPRESS + 8, b"\x00\x80"
ENABLED = 1 << abi.RING_ENABLE_BIT


class WrongBytes(Exception):
    """Memory that the card may not write has changed."""


class HostileGuest:
    """Attacker that behaves as a machine with a driver.

    Parameters
    ----------
    path : path
        Of the card's socket.
    rng : random.Random
    file : int
        Memory of the machine: pages of :data:`SHARED`, :data:`READ_ONLY` and :data:`PRIVATE`.
    """

    def __init__(self, path, rng, file):
        self.rng, self.file, self.memory = rng, file, mmap.mmap(file, 0)
        self.client, self.mapped, self.kept = Client(path), set(), {}
        self.client.write(Region.CONFIG, COMMAND_REGISTER, b"\6\0")
        for page in (*SHARED, *READ_ONLY):
            self.add(page)

    def add(self, page):
        """Map a page; it must have the bytes that it had when it was taken away."""
        if page in self.kept and self.page(page) != self.kept[page]:
            raise WrongBytes(f"page {page}")
        self.client.map(BASE + page * PAGE, PAGE, page * PAGE, BOTH if page in SHARED else READABLE, self.file)
        self.mapped.add(page)

    def page(self, page):
        return self.memory[page * PAGE : (page + 1) * PAGE]

    def remove(self):
        """Take pages away, at any time."""
        first = self.rng.choice(SHARED)
        count = min(self.rng.choice([1, 1, 4]), SHARED.stop - first)
        self.client.unmap(BASE + first * PAGE, count * PAGE)
        for page in range(first, first + count):
            self.mapped.discard(page)
            self.kept[page] = self.page(page)

    def restore(self):
        """Map all that was taken away."""
        for page in set(SHARED) - self.mapped:
            self.add(page)

    def address(self):
        """Return an address: mostly of memory that is mapped, was mapped, or never is."""
        rng = self.rng
        page = rng.choice([rng.choice(SHARED), rng.choice(SHARED), rng.choice(READ_ONLY), rng.choice(PRIVATE)])
        return rng.choice([BASE + page * PAGE] * 6 + [BASE + page * PAGE + rng.randrange(PAGE), rng.getrandbits(64)])

    def number(self, bits):
        rng = self.rng
        return rng.choice([0, 1, rng.randrange(16), (1 << bits) - 1, rng.getrandbits(bits), self.address()]) \
            % (1 << bits)

    # ------------------------------------------------------------------------------------- registers

    def write(self, name, value):
        register = abi.REGISTER[name]
        width = register.width // 8
        self.client.post(Command.REGION_WRITE, access_body(
            Region.BAR0, register.offset, width, (value % (1 << register.width)).to_bytes(width, "little")))

    def write_all(self):
        """Write every register with a random value."""
        for register in abi.REGISTERS:
            self.write(register.name, self.number(register.width))

    def access(self):
        """Read or write anywhere in the BAR, with any size."""
        rng = self.rng
        offset, count = rng.randrange(abi.BAR_BYTES - 64), rng.choice([1, 2, 3, 4, 8, 16, 64])
        if rng.random() < 0.5:
            self.client.read(Region.BAR0, offset, count)
        else:
            self.client.write(Region.BAR0, offset, rng.randbytes(count))

    def reset(self):
        """Reset the function or the card during its work."""
        way = self.rng.randrange(3)
        if way == 0:
            self.client.write(Region.CONFIG, DEVICE_CONTROL, FLR)
        elif way == 1:
            self.client.call(Command.DEVICE_RESET)
        else:
            self.write("control", 3)
        if way < 2:
            self.client.write(Region.CONFIG, COMMAND_REGISTER, self.rng.choice([b"\6\0"] * 4 + [b"\2\0"]))

    def interrupts(self):
        """Give eventfds, blocking and full ones, or take them back."""
        if self.rng.random() < 0.3:
            none = IrqSet.DATA_NONE | IrqSet.ACTION_TRIGGER
            self.client.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, 0, 0, none))
            return
        file = os.eventfd(self.rng.choice([0, (1 << 32) - 1]))
        if self.rng.random() < 0.5:
            os.eventfd_write(file, (1 << 64) - 2 - (1 << 32))
        self.client.call(Command.DEVICE_SET_IRQS, irq_body(Irq.MSIX, self.rng.randrange(8), 1), [file])
        self.client.write(Region.CONFIG, pci.MSIX + 2, b"\0\x80")
        os.close(file)

    # ------------------------------------------------------------------------------------ descriptors

    def descriptor(self, layout, phase, **sane):
        """Return an entry with the given fields and random ones; its check word is mostly right."""
        rng, fields = self.rng, {}
        for field in layout.fields:
            if field.name == "phase":
                fields["phase"] = phase if rng.random() < 0.97 else 1 - phase
            elif field.name == "check" or field.name.startswith("_"):
                continue
            elif field.name in sane and rng.random() < 0.95:
                fields[field.name] = sane[field.name]
            else:
                fields[field.name] = self.number(field.width)
        entry = layout.pack(**fields)
        return abi.sealed(entry) if rng.random() < 0.97 else rng.randbytes(abi.BLOCK_BYTES)

    def entries(self, ring, phase):
        """Yield descriptors for a ring."""
        rng = self.rng
        if ring is abi.Ring.COMMAND:
            sane = {"mac": MAC, "ip": rng.choice([IP, *PEERS]), "qpn": rng.randrange(4), "pd": 1, "mr_index": 0,
                    "key_tag": 0, "va": 0, "length": 16 * PAGE, "access": 15, "page_2m": 0, "pte_index": 0,
                    "count": 16, "address": BASE + rng.choice(SHARED) * PAGE, "psn": 0,
                    "qp_state": abi.QpState.RTS, "psn_guard": 0}
            for opcode in (*abi.CommandOpcode, rng.randrange(128)):
                yield self.descriptor(abi.COMMAND, phase, opcode=opcode, tag=0, extent=0, **sane)
        elif ring is abi.Ring.NIC_TX:
            while True:
                layout, opcode = rng.choice([(abi.NIC_TX, 0), (abi.NIC_TX_INLINE, 1), (abi.NIC_TX_DATA, 2)])
                yield self.descriptor(layout, phase, opcode=opcode, address=self.address(), number=0,
                                      length=rng.choice([60, 74, 1500, 9000]))
        else:
            while True:
                layout, opcode = rng.choice([(abi.WORK, 1), (abi.WORK, 2), (abi.WORK_INLINE, 1), (abi.INLINE_DATA, 3)])
                yield self.descriptor(layout, phase, opcode=opcode, inline=int(layout is abi.WORK_INLINE),
                                      sqpn=rng.randrange(4), dqpn=rng.randrange(4), pmtu=rng.randrange(6), lkey=0,
                                      length=rng.choice([8, 1024, 5000]), local_va=0, dst_ip=rng.choice(PEERS),
                                      dst_mac=MAC - 2, psn=0)

    def ring(self):
        """Set up a ring, its status and its responses anywhere, and ring its doorbell."""
        rng, ring, page = self.rng, self.rng.choice(abi.HOST_TO_CARD), self.rng.choice([*SHARED] * 3 + [*PRIVATE])
        name, log2 = ring.name.lower(), rng.choice([2, 4, 5, 6, 6, rng.randrange(256)])
        self.write("status_block", self.address() & ~63)
        if ring is abi.Ring.COMMAND:
            self.reports(abi.Ring.RESPONSE)
        self.write(f"{name}_base", BASE + page * PAGE)
        self.write(f"{name}_log2", ENABLED | log2)
        self.write("control", 1)
        count = min(rng.randrange(1, 20), 1 << min(log2, 6))
        if page in SHARED:
            for number, entry in zip(range(count), self.entries(ring, 1), strict=False):
                at = page * PAGE + number * abi.BLOCK_BYTES
                self.memory[at : at + abi.BLOCK_BYTES] = entry
                self.kept.pop(page, None)
        self.write(f"{name}_prod", rng.choice([count] * 6 + [rng.getrandbits(16)]))

    def reports(self, ring=None):
        """Set up a ring of the card's entries anywhere."""
        name = (ring or self.rng.choice(abi.CARD_TO_HOST)).name.lower()
        self.write(f"{name}_base", self.address() & ~63)
        self.write(f"{name}_log2", ENABLED | self.rng.choice([2, 6, 6, self.rng.randrange(256)]))
        self.write(f"{name}_cons", self.rng.choice([0, 1 << abi.ARM_BIT, self.rng.getrandbits(32)]))

    def step(self):
        """Do one harmful action."""
        actions = (self.ring, self.ring, self.ring, self.reports, self.remove, self.restore, self.access,
                   self.interrupts, self.write_all, self.reset)
        self.rng.choices(actions, (6, 6, 6, 4, 3, 3, 4, 1, 1, 1))[0]()


def messages(path, rng, started):
    """Be a machine that sends random messages."""
    fuzz, client = MessageFuzz(rng.getrandbits(32)), Client(path)
    started()
    while True:
        files = fuzz.files()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            client.socket.sendmsg([fuzz.message()], ancillary)
        finally:
            for file in files:
                os.close(file)
        if rng.random() < 0.8:
            with contextlib.suppress(BlockingIOError):
                client.socket.recv(1 << 16, socket.MSG_DONTWAIT)


@dataclass
class Attackers:
    """Numbers of attackers: killed ones, those that the server disconnected, and those that noticed wrong bytes.

    ``errors`` are attackers that ended otherwise.
    """

    killed: int = 0
    disconnected: int = 0
    wrong_bytes: int = 0
    errors: int = 0


def fill(file):
    """Put secrets into the pages that the card may not read."""
    os.pwrite(file, bytes(PAGE * PRIVATE.start), 0)
    os.pwrite(file, SECRET * (PAGE * len(PRIVATE) // len(SECRET)), PRIVATE.start * PAGE)


def unchanged(file):
    """Return whether no private or read-only page has changed, and no secret is in another page."""
    secrets = SECRET * (PAGE * len(PRIVATE) // len(SECRET))
    return os.pread(file, len(secrets), PRIVATE.start * PAGE) == secrets \
        and os.pread(file, PAGE * len(READ_ONLY), READ_ONLY.start * PAGE) == bytes(PAGE * len(READ_ONLY)) \
        and SECRET not in os.pread(file, PAGE * len(SHARED), 0)


def live(path, seed, file, started):
    """Be one attacker; return its exit status."""
    rng = random.Random(seed)
    try:
        if rng.random() < 0.2:
            messages(path, rng, started)
        guest = HostileGuest(path, rng, file)
        started()
        while True:
            guest.step()
    except WrongBytes:
        return WRONG
    except (ConnectionError, EOFError, TimeoutError):
        return 0
    except OSError as error:
        return 0 if error.errno else 1        # a command that the server rejects ends the attacker
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1


def one(path, seed, attackers, file):
    """Fork an attacker, kill it at a random time after it began, and count its end."""
    rng, (read, write) = random.Random(f"{seed}/end"), os.pipe()
    fill(file)
    process = os.fork()
    if not process:
        os.close(read)
        os._exit(live(path, seed, file, lambda: os.write(write, b"!")))
    os.close(write)
    os.read(read, 1)
    os.close(read)
    time.sleep(rng.uniform(0, ATTACK_S))
    os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    attackers.killed += status == -signal.SIGKILL
    attackers.disconnected += status == 0
    attackers.errors += status not in (-signal.SIGKILL, 0, WRONG)
    attackers.wrong_bytes += status == WRONG or not unchanged(file)


def main(path, seed, attackers=None):
    parent, counts, number, file = os.getppid(), Attackers(), 0, memfd((PRIVATE.stop) * PAGE)
    while number != (attackers and int(attackers)) and os.getppid() == parent:
        one(path, f"{seed}/{number}", counts, file)
        number += 1
    print(json.dumps(asdict(counts)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
