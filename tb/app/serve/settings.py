"""Settings of a daemon and its back end: options of ``weft serve``, and JSON input of the bench of the RTL."""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from weft.model.settings import PRESET, BadSetting, Setting, chance, check
from weft.tb.app.serve.environment import FOLDER

BACKENDS, TIMES = ("direct", "functional", "model", "rtl"), ("wall", "sim")
HOST, HOSTS_MAX, RTL_HOSTS = re.compile(r"[a-z][a-z0-9_-]{0,30}"), 200, 2
UDP, PORT_MAX = re.compile(r"udp:([^:]+):(\d+)(?::(\d+))?", re.ASCII), 0xFFFF


def _hosts(text: str) -> list[str]:
    names = text.split(",")
    if len(set(names)) < len(names) or not all(map(HOST.fullmatch, names)) or len(names) > HOSTS_MAX:
        raise ValueError("different names are needed, of small letters and digits, with commas between")
    return names


def _link(text: str) -> str:
    found = UDP.fullmatch(text)
    if not found:
        raise ValueError("udp:HOST:PORT is needed, with :OWN-PORT after it if this daemon has another one")
    for port in filter(None, found.groups()[1:]):
        if not 1 <= int(port) <= PORT_MAX:
            raise ValueError(f"port {port!r} must be a whole number from 1 to {PORT_MAX}")
    return text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hosts with one card each, and their link. Raises BadSetting."""

    backend: Annotated[str | None, Setting("From memory to memory without packets (direct), or cards: functional in "
                                           "Python, a timing model, or RTL.", choices=BACKENDS,
                                           default_text="direct, or functional if an option needs packets")] = None
    hosts: Annotated[Sequence[str], Setting("Names of the hosts, with commas between.", read=_hosts, metavar="NAMES",
                                   default_text="a,b")] = ("a", "b")
    loss: Annotated[float, chance("Chance of a loss of each frame.")] = 0.0
    delay_us: Annotated[float | None, Setting("Delay from one host to another.", unit="microseconds", least=0,
                                              most=1_000_000, default_text="1.0")] = None
    time: Annotated[str, Setting("Clock of the programs: the one on the wall, or that of the cards.",
                                 choices=TIMES)] = "wall"
    preset: Annotated[str | None, Setting("Size of the cards.", choices=PRESET.choices,
                                          default_text="full, of RTL test")] = None
    seed: Annotated[str, Setting("Seed of every random choice of link and cards; any text.", metavar="TEXT")] = "1"
    folder: Annotated[str, Setting("Folder of the sockets.", metavar="PATH")] = str(FOLDER)
    link: Annotated[str, Setting("Link to the hosts of another daemon, udp:HOST:PORT or udp:HOST:PORT:OWN-PORT.",
                                 read=_link, metavar="ADDRESS", default_text="none")] = ""
    first: Annotated[int, Setting("Number of the first host, 10.0.0.1 is that of number 1.", least=1,
                                  most=HOSTS_MAX - 1)] = 1
    capture: Annotated[str | None, Setting("Folder of the captures (pcap) of each host.", metavar="PATH")] = None

    def __post_init__(self) -> None:
        check(self)
        if self.backend == "direct" and (name := self.needs_packets):
            raise BadSetting(name, getattr(self, name), "it needs packets, which the direct back end does not have; "
                                                        "leave it out, or choose another --backend")
        if self.link and (self.backend == "rtl" or self.time == "sim"):
            raise BadSetting("link", self.link, "it needs cards in Python, and wall-clock time")
        if self.first > (most := HOSTS_MAX + 1 - len(self.hosts)):
            raise BadSetting("first", self.first, f"it must be a whole number from 1 to {most}")
        if self.backend == "rtl" and len(self.hosts) != RTL_HOSTS:
            raise BadSetting("hosts", ",".join(self.hosts), f"the RTL has {RTL_HOSTS} cards, and needs as many hosts")

    @property
    def needs_packets(self) -> str | None:
        """Name of a setting for which the programs' data has to travel in packets, or None."""
        asked = {"loss": self.loss > 0, "delay_us": self.delay_us is not None, "capture": self.capture is not None,
                 "link": bool(self.link), "time": self.time == "sim"}
        return next((name for name, there in asked.items() if there), None)

    @property
    def cards(self) -> str:
        """Back end that serves: the one asked for, or the default."""
        return self.backend or ("functional" if self.needs_packets else "direct")

    @property
    def delay_ns(self) -> int:
        return round((1.0 if self.delay_us is None else self.delay_us) * 1000)

    @property
    def card(self) -> str:
        """Name of the preset of the cards."""
        return self.preset or ("test" if self.backend == "rtl" else "full")

    def peer(self) -> tuple[int, tuple[Any, ...], int] | None:
        """Return the arguments of ``UdpLink`` to another daemon, if any. Raises BadSetting if its host is not found."""
        found = UDP.fullmatch(self.link)
        if found is None:
            return None
        host, port, own_port = found.groups()
        try:
            (family, *_, address), *_ = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
        except (socket.gaierror, UnicodeError) as error:
            raise BadSetting("link", self.link, f"host {host!r} is not found: "
                                                f"{getattr(error, 'strerror', None) or error}") from None
        return family, address, int(own_port or port)

    def socket(self, host: str) -> Path:
        """Return the path of the socket of a host."""
        return (Path(self.folder) / f"{host}.sock").resolve()
