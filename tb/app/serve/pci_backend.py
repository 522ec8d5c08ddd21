"""Hosts on cards that are PCI functions: boards, or in a virtual machine the cards of `weft machine`."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from weft.driver.device.capabilities import IncompatibleCard
from weft.driver.engine.card_engine import CardEngine
from weft.driver.pci.device import POLL_NS, PciDevice, open_device
from weft.driver.terms.errors import PyverbsRDMAError
from weft.driver.verbs.config import ContextConfig
from weft.driver.verbs.device_list import remove_device
from weft.tb.app.serve.functional import REST_S, SLOT_LOG2, CardBackend
from weft.tb.sim.flow.failure import Failure

BUSY_NS = 100_000       # a shorter rest polls: the daemon's sleeps have whole milliseconds
UNUSABLE = PyverbsRDMAError, IncompatibleCard, OSError      # exceptions of a card's start and end
GONE = "its function reported an uncorrectable error, or is about to be removed; end the daemon to release it"


class PciBackend(CardBackend):
    """Cards of this machine.

    Parameters
    ----------
    hosts
    addresses
        PCI address of the card of each host.
    delay_ns
        Delay to the farthest peer.
    first
        The last byte of the first host's addresses.
    users
        Users, besides this one and root, whose programs may map memory for the cards.
    command_timeout_ns
        See :class:`~weft.driver.verbs.config.ContextConfig`.
    opener
        As :func:`~weft.driver.pci.device.open_device`.

    Raises
    ------
    Failure
        The message names the missing requirement.
    """

    def __init__(self, hosts: Sequence[str], addresses: Sequence[str], *, delay_ns: int, first: int = 1,
                 users: frozenset[int] = frozenset(), command_timeout_ns: int = ContextConfig.command_timeout_ns,
                 congestion: str = "none", opener: Callable[[str], PciDevice] = open_device) -> None:
        super().__init__()
        self.users = users
        self.devices: list[PciDevice] = []
        self._counted: dict[str, dict[str, int]] = {}
        config = ContextConfig(keep_qp_num=True, ring_log2=8, nic_slot_log2=SLOT_LOG2, time_wait_qps=64,
                               probe_timeout_ns=2 * delay_ns + 50_000, command_timeout_ns=command_timeout_ns,
                               congestion=congestion)
        try:
            for n, (name, address) in enumerate(zip(hosts, addresses, strict=True), first - 1):
                self.devices.append(opener(address))
                self._open(name, n, self.devices[-1], None, config)
        except BaseException as error:
            with contextlib.suppress(*UNUSABLE):      # memory of a card that does not answer stays in use
                self._release()
            if isinstance(error, UNUSABLE):
                raise Failure(f"the card {address} cannot be used: {error}") from None
            raise
        self.files = [file for device in self.devices for file in device.files]

    @property
    def _engines(self) -> Iterator[tuple[PciDevice, CardEngine]]:
        return ((device, context.engine) for device, context in zip(self.devices, self.contexts, strict=True))

    def progress(self) -> bool:
        happened = False
        for (device, engine), context in zip(self._engines, self.contexts, strict=True):
            happened |= device.take_interrupts()
            if device.gone and engine.fatal is None:
                engine.fail(GONE)
            happened |= self.work(context)
        return happened

    def rest_s(self) -> float:
        rests = [min(engine.before_wait(REST_S * 1e9), POLL_NS if device.polls else REST_S * 1e9)
                 for device, engine in self._engines if engine.fatal is None]     # a failed one's timers stand still
        return rest / 1e9 if (rest := min(rests, default=REST_S * 1e9)) >= BUSY_NS else 0

    def summary(self) -> Iterator[str]:
        """Yield a sentence about the packets of each host that still answers, or did when it was closed."""
        for host in self.hosts:
            with contextlib.suppress(PyverbsRDMAError, TimeoutError):
                self._count(host)
            if counted := self._counted.get(host):
                yield (f"host {host}: {counted['tx_packets']} packets sent, {counted['tx_retransmissions']} of "
                       f"them retransmissions, {counted['rx_packets']} received, {counted['holes']} of the peers' lost")

    def _count(self, host: str) -> None:
        self._counted[host] = self.statistics(host)

    def close(self) -> None:
        for host in self.hosts:
            with contextlib.suppress(PyverbsRDMAError, TimeoutError):
                self._count(host)
        try:
            self._release()
        except UNUSABLE as error:
            raise Failure(f"a card did not end as it should: {error}; the kernel takes its memory away, and the next "
                          "start resets it") from None

    def _release(self) -> None:
        """Stop the cards, and release their functions, each whatever another one raises."""
        with contextlib.ExitStack() as ends:
            for device in self.devices:
                ends.callback(device.close)
            for name in self.hosts.values():
                ends.callback(remove_device, name)
            for context in self.contexts:
                ends.callback(context.close)
