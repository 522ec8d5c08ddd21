"""Programs that send random messages: ``python -m weft.tb.verify.programs.hostile [MESSAGES] [SEED] [BACKEND]``."""

import os
import random
import sys

from weft.driver.ibverbs.messages import MESSAGES, REQUEST, VERSION, Opcode
from weft.driver.terms.enums import WCStatus
from weft.tb.verify.programs.local import BACKENDS, left_over, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, Disconnected, RawEnd

REPORT_EVERY = 1000
COMMAND = ".venv/bin/python -m weft.tb.verify.programs.hostile {count} {seed}"


def pair(daemon):
    """Return two programs whose QPs are connected."""
    ends = RawEnd(daemon, "a"), RawEnd(daemon, "b")
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


def fuzz(daemon, printed, count, rng, progress=lambda done: None):
    """Send ``count`` messages; return the numbers of those answered, rejected, and answered by dropping the program."""
    good, end = pair(daemon), RawEnd(daemon, "a")
    found = {"answered": 0, "refused": 0, "dropped": 0}
    for n in range(count):
        if n % REPORT_EVERY == 0:
            progress(n)
        try:
            for name in ("sends", "receives", "completions"):
                if rng.random() < 0.02:
                    ring = getattr(end, name)
                    at = rng.randrange(len(ring.memory))
                    ring.memory[at : at + 4] = rng.randbytes(4)[: len(ring.memory) - at]
                    end.ring_bell()
            end.send_message(output_by(rng, end))
            head, _, files = end.receive()
            close_all(files)
            found["refused" if head.status else "answered"] += 1
        except Disconnected:
            found["dropped"] += 1
            end = RawEnd(daemon, "a")
    end.close()
    settle(daemon, 2)
    works(*good)
    works(*good[::-1])
    assert not [sentence for sentence in printed if "unexpected" in sentence]
    for one in good:
        one.close()
    settle(daemon, 0)
    clean(daemon.backend)
    return found


def main(count=100_000, seed=None, backend="functional"):
    """Send ``count`` messages to a daemon with a back end of :data:`BACKENDS`, and print the outcome."""
    seed = random.randrange(1 << 32) if seed is None else int(seed)
    with local_daemon(backend_type=BACKENDS[backend]) as (daemon, printed):
        found = fuzz(daemon, printed, int(count), random.Random(seed))
    print(f"seed {seed}: {found}; {len(printed)} sentences, as {printed[:3]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
