"""Settings of a daemon and its back end: options of ``weft serve``, and JSON input of the bench of the RTL."""

import pwd
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from weft.driver.pci.sysfs import ADDRESS
from weft.driver.verbs.config import ContextConfig
from weft.model.fabric.description import Fabric
from weft.model.fabric.frame.fabric import check_cards
from weft.model.fabric.named import NAMES, of_cards
from weft.model.impairments import LinkConfig
from weft.model.loss import GilbertElliott
from weft.model.settings import (
    CONGESTION,
    PRESET,
    BadSetting,
    BadSettings,
    Setting,
    chance,
    check,
    fields,
    readable_file,
)
from weft.tb.app.serve.environment import FOLDER

WITHOUT_HARDWARE = ("direct", "functional", "model", "rtl")
BACKENDS, TIMES = (*WITHOUT_HARDWARE, "pci"), ("wall", "sim")
HOST, HOSTS_MAX, RTL_HOSTS = re.compile(r"[a-z][a-z0-9_-]{0,30}"), 200, 2
RTL_HOSTS_WANTED = f"the RTL has {RTL_HOSTS} cards, and needs as many hosts"
COMMAND_TIMEOUT_MS = ContextConfig.command_timeout_ns / 1e6
DELAY_US, REORDER_FRAMES, SCHEDULE_BYTES_MAX = 1.0, 8, 1 << 16
UDP, PORT_MAX = re.compile(r"udp:([^:]+):(\d+)(?::(\d+))?", re.ASCII), 0xFFFF


def _hosts(text: str) -> list[str]:
    names = text.split(",")
    if len(set(names)) < len(names) or not all(map(HOST.fullmatch, names)) or len(names) > HOSTS_MAX:
        raise ValueError("different names are needed, of small letters and digits, with commas between")
    return names


def pci_addresses(text: str) -> list[str]:
    """Return the PCI addresses of a list with commas. Raises ValueError, with the second half of a sentence."""
    addresses = text.split(",")
    if len(set(addresses)) < len(addresses) or not all(map(ADDRESS.fullmatch, addresses)):
        raise ValueError("addresses of PCI functions are needed, as 0000:00:03.0, with commas between; `weft devices` "
                         "lists those of cards")
    return addresses


def _users(text: str) -> list[str]:
    for name in (names := text.split(",")):
        try:
            pwd.getpwnam(name)
        except KeyError:
            raise ValueError(f"there is no user {name!r}") from None
    return names


def _link(text: str) -> str:
    found = UDP.fullmatch(text)
    if not found:
        raise ValueError("udp:HOST:PORT is needed, with :OWN-PORT after it if this daemon has another one")
    for port in filter(None, found.groups()[1:]):
        if not 1 <= int(port) <= PORT_MAX:
            raise ValueError(f"port {port!r} must be a whole number from 1 to {PORT_MAX}")
    return text


def _schedule(text: str) -> str:
    """Return the contents of a file."""
    path = readable_file(text)
    if path.stat().st_size > SCHEDULE_BYTES_MAX:
        raise ValueError(f"the file has more than {SCHEDULE_BYTES_MAX} bytes")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None


FABRIC = Setting(f"Network between the hosts: {NAMES}, with -N for N flows, as incast-3, or a file *.toml.",
                 metavar="NAME|PATH", default_text="none", encoded=True)
SCHEDULE = Setting("Schedule of faults: a TOML file with a seed and steps.", read=_schedule, metavar="PATH")


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Impairments of the frames that a host sends; None: unchanged, at first none. Raises BadSetting."""

    loss: Annotated[float | None, chance("Chance of a loss of each frame.", default_text="0")] = None
    burst: Annotated[float | None, Setting("Mean number of frames lost in a row; the loss is then their share.",
                                           least=1, most=1_000_000, default_text="1")] = None
    duplicate: Annotated[float | None, chance("Chance that a frame arrives twice.", default_text="0")] = None
    reorder: Annotated[float | None, chance(f"Chance that 1 to {REORDER_FRAMES} later frames overtake a frame.",
                                            default_text="0")] = None
    corrupt: Annotated[float | None, chance("Chance of a flipped bit.", default_text="0")] = None
    rate_gbps: Annotated[float | None, Setting("Rate of the link; 0: unlimited.", unit="Gbit/s", least=0, most=10_000,
                                               default_text="0")] = None
    delay_us: Annotated[float | None, Setting("Delay from one host to another.", unit="microseconds", least=0,
                                              most=1_000_000, default_text="1")] = None
    jitter_us: Annotated[float | None, Setting("Largest additional delay, which varies; frames keep their order.",
                                               unit="microseconds", least=0, most=1_000_000,
                                               default_text="0")] = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def delay_ns(self) -> int:
        """Longest delay from one host to another."""
        return round(1000 * ((DELAY_US if self.delay_us is None else self.delay_us) + (self.jitter_us or 0)))

    def config(self) -> LinkConfig:
        """Return the configuration of a link."""
        loss, burst = self.loss or 0.0, self.burst or 1
        bursts = GilbertElliott(burst, loss) if burst > 1 and loss < 1 else None
        jitter_ns = round(1000 * (self.jitter_us or 0))
        return LinkConfig(delay_ns=self.delay_ns - jitter_ns, jitter_ns=jitter_ns, rate_gbps=self.rate_gbps or None,
                          loss=0.0 if bursts else loss, loss_model=bursts, duplicate=self.duplicate or 0.0,
                          reorder=self.reorder or 0.0, reorder_distance=REORDER_FRAMES, corrupt=self.corrupt or 0.0)


@dataclass(frozen=True, kw_only=True)
class HostSettings(LinkSettings):
    """Hosts with one card each on a switch, and a socket for each. Raises BadSetting."""

    hosts: Annotated[Sequence[str], Setting("Names of the hosts, with commas between.", read=_hosts, metavar="NAMES",
                                   default_text="a,b")] = ("a", "b")
    seed: Annotated[str, Setting("Seed of every random choice of link and cards; any text.", metavar="TEXT",
                                  encoded=True)] = "1"
    folder: Annotated[str, Setting("Folder of the sockets.", metavar="PATH")] = str(FOLDER)

    def socket(self, host: str) -> Path:
        """Return the path of the socket of a host."""
        return (Path(self.folder) / f"{host}.sock").resolve()


@dataclass(frozen=True, kw_only=True)
class Settings(HostSettings):
    """Hosts of a daemon, its cards, and links to other daemons. Raises BadSetting."""

    backend: Annotated[str | None, Setting("From memory to memory without packets (direct), or cards: functional in "
                                           "Python, a timing model, RTL, or hardware (pci).", choices=BACKENDS,
                                           default_text="direct, or functional if an option needs packets")] = None
    device: Annotated[Sequence[str], Setting("PCI addresses of the cards of the hosts, with commas between, for "
                                             "back end pci.", read=pci_addresses, metavar="ADDRESSES",
                                             default_text="none")] = ()
    users: Annotated[Sequence[str], Setting("Users, besides that of the daemon and root, whose programs may map memory "
                                            "for the cards of back end pci.", read=_users, metavar="NAMES",
                                            default_text="none")] = ()
    command_timeout_ms: Annotated[float, Setting(
        "Longest wait for a response of a card of back end pci. A simulated card of a virtual machine on a loaded host "
        "needs more.", unit="milliseconds", least=1, most=600_000)] = COMMAND_TIMEOUT_MS
    time: Annotated[str, Setting("Clock of the programs: the one on the wall, or that of the cards.",
                                 choices=TIMES)] = "wall"
    preset: Annotated[str | None, Setting("Size of the cards.", choices=PRESET.choices,
                                          default_text="full, of RTL test")] = None
    link: Annotated[str, Setting("Link to the hosts of another daemon, udp:HOST:PORT or udp:HOST:PORT:OWN-PORT.",
                                 read=_link, metavar="ADDRESS", default_text="none")] = ""
    first: Annotated[int, Setting("Number of the first host, 10.0.0.1 is that of number 1.", least=1,
                                  most=HOSTS_MAX - 1)] = 1
    capture: Annotated[str | None, Setting("Folder of the captures (pcap) of each host.", metavar="PATH")] = None
    faults: Annotated[str, replace(SCHEDULE, default_text="none")] = ""
    fabric: Annotated[str, FABRIC] = ""
    congestion: Annotated[str, CONGESTION] = "none"

    def __post_init__(self) -> None:
        check(self)
        if self.backend == "direct" and (name := self.needs_packets):
            raise BadSetting(name, getattr(self, name), "it needs packets, which the direct back end does not have; "
                                                        "leave it out, or choose another --backend")
        self._check_pci()
        if self.link and (self.backend == "rtl" or self.time == "sim"):
            raise BadSetting("link", self.link, "it needs cards in Python, and wall-clock time")
        self._check_fabric()
        if self.first > (most := HOSTS_MAX + 1 - len(self.hosts)):
            raise BadSetting("first", self.first, f"it must be a whole number from 1 to {most}")
        if self.backend == "rtl" and len(self.hosts) != RTL_HOSTS:
            raise BadSetting("hosts", ",".join(self.hosts), RTL_HOSTS_WANTED)

    def _check_fabric(self) -> None:
        """Check the fabric, and that the hosts are as many as its hosts."""
        if not self.fabric:
            return
        for name in ("delay_us", "jitter_us", "rate_gbps"):
            if getattr(self, name):
                raise BadSetting(name, getattr(self, name), "links of a fabric have their own; leave it out, or put it "
                                                            "into a file for --fabric")
        if self.link or self.cards == "rtl":
            raise BadSetting("fabric", self.fabric, "it needs cards in Python, and all hosts in one daemon")
        try:
            check_cards(self.network(), len(self.hosts))
        except BadSettings as problem:
            raise BadSetting("fabric", self.fabric, str(problem)) from None

    def network(self) -> Fabric:
        """Return the description of the fabric. Raises BadSettings."""
        return of_cards(self.fabric)

    @property
    def path_ns(self) -> int:
        """Longest delay from one host to another, without waiting in queues."""
        return round(self.network().longest_ns) if self.fabric else self.delay_ns

    def impairments(self) -> LinkSettings:
        """Return the impairments of the links of the hosts; before a fabric they have no delay."""
        found = {name: getattr(self, name) for name in fields(LinkSettings)}
        return LinkSettings(**found | ({"delay_us": 0.0} if self.fabric else {}))

    def _check_pci(self) -> None:
        if self.backend != "pci":
            for name in ("device", "users"):
                if getattr(self, name):
                    raise BadSetting(name, ",".join(getattr(self, name)), "it needs --backend pci")
            if self.command_timeout_ms != COMMAND_TIMEOUT_MS:
                raise BadSetting("command_timeout_ms", self.command_timeout_ms, "it needs --backend pci")
            return
        if not self.device:
            raise BadSetting("backend", "pci", "it needs --device with the address of a card; `weft devices` lists "
                                               "them")
        if self.hosts == HostSettings.hosts:        # the default, of which one device needs one
            object.__setattr__(self, "hosts", self.hosts[:len(self.device)])
        if len(self.hosts) != len(self.device):
            raise BadSetting("hosts", ",".join(self.hosts), f"{len(self.device)} devices are as many hosts")
        for name in (*self._needing_packets, *(("preset",) if self.preset else ())):
            if name not in ("delay_us", "congestion"):
                raise BadSetting(name, getattr(self, name), "it needs simulated cards; leave it out, or choose another "
                                                            "--backend")

    @property
    def needs_packets(self) -> str | None:
        """Name of a setting for which the programs' data has to travel in packets, or None."""
        return next(self._needing_packets, None)

    @property
    def _needing_packets(self) -> Iterator[str]:
        names = (*fields(LinkSettings), "capture", "link", "faults", "fabric")
        asked = {name: bool(getattr(self, name)) for name in names}
        asked |= {"time": self.time == "sim", "congestion": self.congestion != "none"}
        return (name for name, there in asked.items() if there)

    @property
    def cards(self) -> str:
        """Back end that serves: the one asked for, or the default."""
        return self.backend or ("functional" if self.needs_packets else "direct")

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

    @property
    def control(self) -> Path:
        """Path of the socket of `weft link`."""
        return self.socket(self.hosts[0]).with_suffix(".link")
