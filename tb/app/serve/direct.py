"""Hosts whose programs exchange data from memory to memory, without packets."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from weft.driver.ibverbs.build import DIRECT, build
from weft.driver.serve.client import Client
from weft.driver.serve.direct.engine import Engine
from weft.driver.serve.direct.objects import DirectClient
from weft.driver.serve.quota import Account
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.app.serve.functional import FunctionalBackend


class DirectBackend(FunctionalBackend):
    """Functional cards for connection management alone; compiled code executes the requests of the programs.

    Parameters
    ----------
    hosts, **options
        See :class:`~weft.tb.app.serve.functional.FunctionalBackend`.
    library
        libibverbs as it is built; the default builds it if necessary.
    """

    def __init__(self, hosts: Sequence[str], *, library: Path | None = None, **options: Any) -> None:
        super().__init__(hosts, **options)
        self.engine = Engine((library or build(LIBRARY_FOLDER)).with_name(DIRECT))
        self.files = [*self.files, self.engine.notices]
        for context, name in zip(self.contexts, self.hosts.values(), strict=True):
            self.engine.add_host(name, context.ip, context.qps.size)

    def copying(self) -> tuple[int, Client] | None:
        return self.engine.copying()

    def client(self, connection: socket.socket, name: str, whole: Account) -> Client:
        return DirectClient(self.engine, connection, name, whole)

    def statistics(self, host: str) -> dict[str, int]:
        """Return the counters of a host: those of its card, to which each message of the engine adds as a packet."""
        sent, sent_bytes, received, received_bytes = self.engine.traffic(self.hosts[host])
        added = {"tx_packets": sent, "tx_bytes": sent_bytes, "rx_packets": received, "rx_frames": received,
                 "rx_bytes": received_bytes}
        counted = super().statistics(host)
        return counted | {name: counted[name] + number for name, number in added.items()}

    def progress(self) -> bool:
        happened = super().progress()
        return self.engine.deliver() or happened

    def summary(self) -> Iterator[str]:
        """Yield a sentence about the requests of all programs."""
        messages, size = self.engine.counts
        yield f"{messages} requests with {size} bytes were executed directly, without packets"

    def close(self) -> None:
        super().close()
        self.engine.close()
