"""Cases of ``weft interop``: each returns a sentence if it passes, and raises an exception if it fails."""

import contextlib
import select
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

from weft.driver.terms.enums import MTU

from . import environments
from .exchange import Talk, card_writes, soft_exchange
from .guest import GATEWAY, GuestFailed
from .suite import suite_on_rxe

TESTS = ("ib_write_bw", "ib_send_bw", "ib_read_bw", "ib_atomic_bw")
LOSS = 0.01
PERFTEST_S, GUEST_TIMEOUT = 240, 18     # the latter: perftest's -u, 2^18 * 4.096 µs = 1.07 s


def endpoint(guest, loss=0.0, seed=0):
    """Run the software endpoint at the guest's link."""
    environment = environments.SoftEnvironment(guest, loss, seed)
    output = soft_exchange(environment, seed=seed)
    return f"{output}, {environment.wire.lost} frames lost in flight"


def endpoint_over_card(guest, seed=0):
    """Run the endpoint at the Simple NIC of a functional card, with packets of 4096 bytes."""
    with contextlib.closing(environments.CardEnvironment(guest,
                                                         environments.RealTimeCard(guest.port, seed))) as environment:
        output = soft_exchange(environment, seed=seed, mtu=MTU.MTU_4096)
        return f"{output}, {environment.context.statistics()['rx_raw_frames']} frames through the Simple NIC"


def card(guest, loss=LOSS, seed=0):
    """Run WRITEs over the hardware path of a functional card."""
    wire = environments.LossyPort(guest.port, loss, seed)
    with contextlib.closing(environments.CardEnvironment(guest, environments.RealTimeCard(wire, seed))) as environment:
        output = card_writes(environment, seed=seed)
        return f"{output}, {wire.lost} frames lost in flight"


def perftest(guest, tests=TESTS, iterations=200, size=16_384):
    """Run perftest's clients in the guest against ``weft soft-server``, which is a separate process."""
    guest.port.close()
    server = subprocess.Popen(
        [sys.executable, "-m", "weft.tb.cli", "soft-server", "--qemu", f"127.0.0.1:{guest.numbers[0]}", "--listen", "0",
         "--clients", str(len(tests))], stdout=subprocess.PIPE, text=True)
    console = SimpleNamespace(guest=guest, step=lambda: select.select([guest], [], [], environments.MOMENT_S))
    talk = Talk(console)        # the peer is another program: only the console is read
    try:
        number = int(server.stdout.readline().rsplit(" ", 1)[1])
        rates = []
        for test in tests:
            length = "" if "atomic" in test else f"-s {size}"
            before = len(guest.output)
            status = talk.ask(f"sh timeout -s KILL {PERFTEST_S} /bin/{test} -d rxe0 -x 1 -F -u {GUEST_TIMEOUT} "
                              f"-n {iterations} {length} -m 1024 -p {number} {GATEWAY}")
            lines = guest.output[before:]
            results = [line.split() for line in lines if line.split()[1:2] == [str(iterations)]]
            if status != "status 0" or not results:
                raise GuestFailed(f"{test} in the guest: {status}; {' | '.join(lines[-5:])}")
            rates.append(f"{test} {1e6 * float(results[0][4]):.0f}")
        assert server.wait(PERFTEST_S) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        guest.take_port()
    return f"{', '.join(rates)} messages a second, {iterations} of each with -u {GUEST_TIMEOUT}"


def cases(short=False):
    """Return the cases by name; each is a function of a guest."""
    found = {
        "endpoint and rxe, both ways, 1 % loss": lambda guest: endpoint(guest, LOSS, 1),
        "endpoint over a functional card's Simple NIC": endpoint_over_card,
        "functional card's WRITEs into rxe's memory, 1 % loss": card,
    }
    if not short:
        from .rtl_cases import on_rtl
        found = {"endpoint and rxe, both ways": endpoint} | found | {
            "perftest against weft soft-server": perftest,
            "conformance suite on rxe": suite_on_rxe,
            "endpoint over the Simple NIC of the RTL": partial(on_rtl, case="endpoint"),
            "RTL's WRITEs into rxe's memory": partial(on_rtl, case="card"),
        }
    return found


def run(guest, chosen, report=print):
    """Run cases, and print a line for each; further lines of a case follow."""
    for name, case in chosen.items():
        start = time.monotonic()
        first, *more = case(guest).splitlines()
        report("\n  ".join([f"{name}: {first}, {time.monotonic() - start:.1f} s", *more]))

