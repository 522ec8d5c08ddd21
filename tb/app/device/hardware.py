"""Cards of this machine for the device tools: PCI functions instead of simulated cards."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from weft.driver.device.capabilities import IncompatibleCard
from weft.driver.pci.device import open_device
from weft.driver.terms.errors import PyverbsError
from weft.tb.app.device import devinfo, short_run
from weft.tb.app.serve.pci_backend import PciBackend
from weft.tb.app.stage.host import Host, PeerFailed, Program, ProgramFailed, raise_first
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.pair.settings import timeout

SIDES = "ab"
PROCESSOR_US = 10_000                   # time for which a process of a loaded machine may wait for a processor
COMMAND_TIMEOUT_NS = 10_000_000_000     # a tool has time: a card that answers later is reported
FAILED = PyverbsError, IncompatibleCard, ProgramFailed, PeerFailed, OSError


def devinfos(addresses: Sequence[str], *, command_timeout_ns: int = COMMAND_TIMEOUT_NS) -> list[dict[str, Any]]:
    """Return :func:`weft.tb.app.device.devinfo.query` of the cards at PCI addresses, each of which it resets.

    Raises
    ------
    Failure
        The message names the missing requirement, or the reason why a card cannot be used.
    """
    with _opened(addresses, 0, command_timeout_ns) as hosts:
        return [devinfo.query(host) for host in hosts]


def counters(addresses: Sequence[str], *, messages: int, rtt_us: float = 0,
             command_timeout_ns: int = COMMAND_TIMEOUT_NS) -> list[dict[str, int]]:
    """Return the counters of one or two cards and their drivers after a reset and a short run.

    Two cards run :func:`weft.tb.app.device.short_run.program` over the link between them, one card alone
    :func:`weft.tb.app.device.short_run.alone`.

    Parameters
    ----------
    addresses
        PCI addresses.
    messages
        Requests of each kind, or frames.
    rtt_us
        Round trip time of the link, in microseconds.

    Raises
    ------
    Failure
    """
    patience_us = rtt_us + PROCESSOR_US
    with _opened(addresses, rtt_us, command_timeout_ns) as hosts:
        if len(hosts) == 1:
            return [short_run.alone(hosts[0], messages)]
        return _played(hosts, short_run.program, messages=messages, timeout=timeout(patience_us))


@contextlib.contextmanager
def _opened(addresses: Sequence[str], rtt_us: float, command_timeout_ns: int) -> Iterator[list[Host]]:
    """Bring cards up for the block, which may raise errors of the driver."""
    backend = PciBackend(addresses, addresses, delay_ns=round(rtt_us * 500), command_timeout_ns=command_timeout_ns,
                         opener=open_device)
    try:
        yield [Host(side, context, lambda *_: None, rtt_us + PROCESSOR_US)
               for side, context in zip(SIDES * len(addresses), backend.contexts, strict=False)]
    except BaseException as error:
        with contextlib.suppress(Failure):      # the error of the block is the first
            backend.close()
        if isinstance(error, FAILED):
            raise Failure(f"the run on {', '.join(addresses)} failed: {error}") from None
        raise
    backend.close()


def _played(hosts: list[Host], program: Program, **arguments: Any) -> list[Any]:
    """Play a program on both hosts, in a thread each; return the results."""
    for host, peer in zip(hosts, hosts[::-1], strict=True):
        host.peer = peer
    with ThreadPoolExecutor(len(hosts)) as pool:
        results = list(pool.map(lambda host: host.play(program, arguments), hosts))
    raise_first(hosts)
    return results
