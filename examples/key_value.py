"""Key-value store without a server process in the data path: clients find and change entries by RDMA.

    python examples/key_value.py [--rtl]

The store is an open-addressed hash table in the server's memory. An entry has 64 bytes:

    version (8) | key (16) | value (40)

which is one line of memory, so it is read at once. A reader READs it, again while the version is odd. A writer takes
it by an atomic COMPARE AND SWAP of the version, from even to odd, WRITEs key and value, and releases it by a FETCH
AND ADD, to the next even number; so no reader sees half of a value, and two writers do not mix. The
programs exchange addresses with ``send`` and ``receive``, once, as they would over TCP.
"""

import argparse
import hashlib

from weft.driver import CQ, MR, PD, QP, SGE, AccessFlag, QPConnection, SendFlags, SendWR, WROpcode, rc_init_attr
from weft.tb.app.stage.stage import Stage, play

ENTRIES, ENTRY, KEY, VALUE = 64, 64, 16, 40
REMOTE = AccessFlag.REMOTE_READ | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC
EMPTY = bytes(KEY)


class Store:
    """Client of the table: its context, and the peer, address and key from the server."""

    def __init__(self, context, peer, address, rkey):
        self.pd, self.cq = PD(context), CQ(context, 1)
        self.mr = MR(self.pd, ENTRY, AccessFlag.LOCAL_WRITE)     # one entry at a time
        self.qp = QP(self.pd, rc_init_attr(self.cq, max_send_wr=1))
        self.peer, self.address, self.rkey = QPConnection(**peer), address, rkey

    def connect(self):
        self.qp.connect(self.peer, max_rd_atomic=1)

    def do(self, opcode, at, length, offset=0, **atomic):
        """One operation between the local entry, from ``offset`` on, and the remote byte ``at``."""
        wr = SendWR(0, opcode, sg=[SGE(self.mr.buf + offset, length, self.mr.lkey)],
                    send_flags=SendFlags.SIGNALED, **atomic)
        wr.set_wr_rdma(self.rkey, self.address + at)
        self.qp.post_send(wr)
        [wc] = self.cq.wait()
        if wc.status:
            raise RuntimeError(f"{opcode.name}: {wc.status.name}")
        return self.mr.read(length, offset)

    def find(self, key):
        """(place, version, value) of a key; value None if it is not there, but may be put at the place."""
        start = int.from_bytes(hashlib.sha256(key).digest()[:4], "little")
        for step in range(ENTRIES):
            at = (start + step) % ENTRIES * ENTRY
            while True:
                entry = self.do(WROpcode.RDMA_READ, at, ENTRY)
                version, found, value = entry[:8], entry[8:8 + KEY], entry[8 + KEY:]
                if not version[0] & 1:       # no writer has it
                    break
            if found in (key, EMPTY):
                return at, int.from_bytes(version, "little"), value if found == key else None
        raise RuntimeError("the store is full")

    def get(self, name):
        value = self.find(padded(name, KEY))[2]
        return None if value is None else value.rstrip(b"\0").decode()

    def put(self, name, text):
        key, value = padded(name, KEY), padded(text, VALUE)
        while True:
            at, version, _ = self.find(key)
            old = self.do(WROpcode.ATOMIC_CMP_AND_SWP, at, 8, compare_add=version, swap=version + 1)
            if int.from_bytes(old, "little") == version:
                break                        # this writer has it; otherwise another one was faster
        self.mr.write(key + value, offset=8)
        self.do(WROpcode.RDMA_WRITE, at + 8, KEY + VALUE, offset=8)
        self.do(WROpcode.ATOMIC_FETCH_AND_ADD, at, 8, compare_add=1)


def padded(text, length):
    data = text.encode()
    if not 0 < len(data) <= length or b"\0" in data:
        raise ValueError(f"{text!r} has to have 1 to {length} bytes, none of them 0")
    return data.ljust(length, b"\0")


def server(host, words):
    """Provide the memory and wait: driver and card answer."""
    with PD(host.context) as pd, CQ(host.context, 1) as cq:
        mr = MR(pd, ENTRIES * ENTRY, AccessFlag.LOCAL_WRITE | REMOTE)
        qp = QP(pd, rc_init_attr(cq))
        host.send(vars(qp.connection), mr.buf, mr.rkey)
        (peer,) = host.receive()
        qp.connect(QPConnection(**peer), qp_access_flags=REMOTE, max_dest_rd_atomic=1)
        host.send("ready")
        host.receive()                          # the client is done
        return sum(mr.read(KEY, at + 8) != EMPTY for at in range(0, ENTRIES * ENTRY, ENTRY))


def client(host, words):
    """Puts all words, changes some of them, and gets them all."""
    store = Store(host.context, *host.receive())
    with store.pd, store.cq:
        host.send(vars(store.qp.connection))
        host.receive()
        store.connect()
        for word in words:
            store.put(word, word.upper())
        for word in words[::3]:
            store.put(word, f"{word} twice")
        found = {word: store.get(word) for word in [*words, "nobody"]}
    host.send("done")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=["warp", "weft", "loom", "shuttle"], help="keys")
    parser.add_argument("--rtl", action="store_true", help="on the RTL of two cards; a minute more")
    parser.add_argument("--seed", type=int, default=1, help="which frames get lost")
    arguments = parser.parse_args()
    values, entries = play((client, server), backend="rtl" if arguments.rtl else "functional",
                           stage=Stage(loss=0.02, rtt_us=2, seed=arguments.seed), words=arguments.words)
    for word, value in values.items():
        print(f"{word}: {value}")
    print(f"{entries} entries in the server's memory")
