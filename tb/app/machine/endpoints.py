"""Functions of hosts at their sockets."""

import abc
import select
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from weft.driver.vfio_user.endpoint import Endpoint
from weft.driver.vfio_user.simulated_function import SimulatedFunction
from weft.hdl.contract import params
from weft.hdl.contract.pci import PciFunction, card_function
from weft.model.link import Link
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.app.serve.functional import sentence_of


class Endpoints(abc.ABC):
    """Functions and links of all hosts. Subclasses have the cards.

    Parameters
    ----------
    settings : MachineSettings
    report : callable(sentence)
    links : dict of str to Link
        Link on which each host sends.

    Attributes
    ----------
    functions : dict of str to SimulatedFunction
        By host.
    endpoints : list of Endpoint
    """

    functions: Mapping[str, SimulatedFunction]

    def __init__(self, settings: MachineSettings, report: Callable[[str], object],
                 links: Mapping[str, Link]) -> None:
        self.links, description = links, card_function(params.preset(settings.card))
        self.functions = {name: self.function(name, description, partial(_named, report, name))
                          for name in settings.hosts}
        Path(settings.folder).mkdir(parents=True, exist_ok=True)
        self.endpoints = [Endpoint(settings.socket(name), function, report)
                          for name, function in self.functions.items()]

    @abc.abstractmethod
    def function(self, name: str, description: PciFunction, report: Callable[[str], object]) -> SimulatedFunction:
        """Make the function of a host."""

    @abc.abstractmethod
    def turn(self) -> None:
        """Serve the machines and advance time, or wait until there is something to do."""

    def serve(self) -> bool:
        """Serve messages of each machine; return false if there was none."""
        return sum(endpoint.turn() for endpoint in self.endpoints) > 0      # every one has its turn

    def wait(self, limit_s: float) -> bool:
        """Wait for a message, and return whether there is one; a wait of less than a millisecond is none."""
        poll = select.poll()
        for endpoint in self.endpoints:
            for event, files in ((select.POLLIN, endpoint.reads), (select.POLLOUT, endpoint.writes)):
                for file in files:
                    poll.register(file, event)
        return bool(poll.poll(int(limit_s * 1000)))

    def summary(self) -> Iterator[str]:
        """Yield a sentence about the frames and requests of each host."""
        for name, function in self.functions.items():
            counts = function.counters
            yield (f"{sentence_of(name, self.links[name].counters)}; "
                   f"{counts['unsupported_requests']} unsupported requests, {counts['resets']} resets")

    def close(self) -> None:
        """End all connections."""
        for endpoint in self.endpoints:
            endpoint.close()


def _named(report: Callable[[str], object], name: str, sentence: str) -> None:
    report(f"host {name}: {sentence}")
