"""Settings of the main job: options of ``weft sim`` and of ``make sim``, and JSON input of the bench."""

from dataclasses import dataclass, replace
from typing import Annotated

from weft.driver.engine.qp_table import FIRST_INDEX
from weft.hdl.contract import wire
from weft.hdl.contract.params import preset
from weft.model.fabric.description import Fabric
from weft.model.fabric.frame.fabric import check_cards
from weft.model.fabric.named import NAMES, of_cards
from weft.model.settings import (
    CONGESTION,
    PMTUS,
    PRESET,
    RTT_US,
    SEED,
    BadSetting,
    BadSettings,
    Setting,
    chance,
    check,
    fields,
    readable_file,
)
from weft.tb.sim.pair.settings import LETTERS, SIDES

HOSTS_MAX, RTL_HOSTS_MAX = len(LETTERS), 4
_OF_A_LINE = ("reorder", "dup", "corrupt", "back_loss", "back_reorder", "back_dup", "back_corrupt", "pfc", "mac_clock",
              "timeline", "waves")
BACKENDS, SIMULATORS = ("rtl", "model"), ("verilator", "icarus")
_RTL = ("rtl",)


def _fabric(text: str) -> str:
    """Return the name of a fabric, or the absolute path of its file."""
    return str(readable_file(text)) if text.endswith(".toml") else text


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """File, link and cards of the main job, which sends the file from host A to host B. Raises BadSetting."""

    file: Annotated[str, Setting("File that travels, up to 16 MiB.", read=lambda text: str(readable_file(text)),
                                 metavar="PATH", default_text="one of 1.02 MiB from an installed package")] = ""
    loss: Annotated[float, chance("Chance that the link loses a packet from A to B.")] = 0.01
    reorder: Annotated[float, chance("Chance that it holds a packet back, by at most 1 µs.")] = 0.0
    dup: Annotated[float, chance("Chance that it delivers a packet twice.")] = 0.0
    corrupt: Annotated[float, chance("Chance that it flips a bit of a packet.")] = 0.0
    back_loss: Annotated[float, chance("Chance of a loss from B to A, the direction of loss reports.")] = 0.0
    back_reorder: Annotated[float, chance("Chance of a delay from B to A.")] = 0.0
    back_dup: Annotated[float, chance("Chance of a duplicate from B to A.")] = 0.0
    back_corrupt: Annotated[float, chance("Chance of a flipped bit from B to A.")] = 0.0
    rtt_us: Annotated[float, RTT_US] = 20.0
    qps: Annotated[int, Setting("Queue pairs (connections) that carry the file.", least=1,
                                most=preset("full").qps - FIRST_INDEX)] = 1
    seed: Annotated[int, replace(SEED, help="Seed of every random choice: the same seed gives the same run.")] = 1
    pmtu: Annotated[int, Setting("Largest payload of a packet.", unit="bytes", choices=PMTUS)] = 1024
    sim: Annotated[str, Setting("Simulator; icarus is some hundred times slower, for files of a few KiB.",
                                choices=SIMULATORS, backends=_RTL)] = "verilator"
    preset: Annotated[str, replace(PRESET, help="Size of the cards; larger ones take long to build.")] = "test"
    backend: Annotated[str, Setting("RTL, or a timing model of the cards, which is far faster.",
                                    choices=BACKENDS)] = "rtl"
    hosts: Annotated[int | None, Setting("Hosts; more than two need a fabric.", least=2, most=HOSTS_MAX,
                                         default_text="2, or those of the fabric")] = None
    fabric: Annotated[str, Setting(f"Network between the hosts: {NAMES}, with -N for N flows, as incast-3, or a file "
                                   "*.toml. Each of its flows carries the file.", read=_fabric, metavar="NAME|PATH",
                                   default_text="none: a line between two hosts", encoded=True)] = ""
    congestion: Annotated[str, CONGESTION] = "none"
    pfc: Annotated[int | None, Setting("Priority-based flow control: the priority for which both cards pause.", least=0,
                                       most=wire.PRIORITIES - 1, backends=_RTL, lack="flow control")] = None
    straddle: Annotated[bool, Setting("Cards and PCIe blocks with straddle.", backends=_RTL, lack="straddle")] = False
    mac_clock: Annotated[bool, Setting("MACs with separate clocks.", backends=_RTL,
                                       lack="clocks beside its one")] = False
    timeline: Annotated[bool, Setting("Keep a timeline that Perfetto opens.")] = False
    waves: Annotated[bool, Setting("Record waves.", backends=_RTL, lack="signals")] = False

    def __post_init__(self) -> None:
        check(self)
        most = preset(self.preset).qps - FIRST_INDEX
        if self.qps > most:
            raise BadSetting("qps", self.qps, f"it must be a whole number from 1 to {most} with preset {self.preset}")
        if self.fabric:
            self._check_fabric()
        elif self.hosts not in (None, len(SIDES)):
            raise BadSetting("hosts", self.hosts, "a line has two ends; choose a --fabric for more hosts")

    def _check_fabric(self) -> None:
        """Check the fabric, the number of hosts, and that no other setting is about a line between two hosts."""
        try:
            network = self.network()
            check_cards(network, self.hosts or len(network.hosts))
        except BadSettings as problem:
            raise BadSetting("fabric", self.fabric, str(problem)) from None
        most = HOSTS_MAX if self.backend == "model" else RTL_HOSTS_MAX
        if len(network.hosts) > most:
            raise BadSetting("fabric", self.fabric, f"it has {len(network.hosts)} hosts, and back end {self.backend} "
                                                    f"at most {most}")
        if not network.flows:
            raise BadSetting("fabric", self.fabric, "it has no flow; write one as [[flow]] into the file")
        for name in ("loss", "rtt_us") if self.fabric.endswith(".toml") else ():
            if getattr(self, name) != fields(JobSettings)[name].default:
                raise BadSetting(name, getattr(self, name), "the file of the fabric has the losses and delays")
        for name in _OF_A_LINE:
            if getattr(self, name) != fields(JobSettings)[name].default:
                raise BadSetting(name, getattr(self, name), "it needs a line between two hosts; leave out --fabric")

    def network(self) -> Fabric:
        """Return the description of the fabric, with ``loss`` at its bottleneck and ``rtt_us``. Raises BadSettings."""
        return of_cards(self.fabric, rtt_us=self.rtt_us, loss=self.loss)
