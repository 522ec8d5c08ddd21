"""Settings of the main job: options of ``weft sim`` and of ``make sim``, and JSON input of the bench."""

from dataclasses import dataclass, replace
from typing import Annotated

from weft.driver.engine.qp_table import FIRST_INDEX
from weft.hdl.contract import wire
from weft.hdl.contract.params import preset
from weft.model.settings import PMTUS, PRESET, RTT_US, SEED, BadSetting, Setting, chance, check, readable_file

BACKENDS, SIMULATORS = ("rtl", "model"), ("verilator", "icarus")
_RTL = ("rtl",)


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
