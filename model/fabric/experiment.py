"""Parameters of an experiment: fabric, load and congestion control, in common units. A run depends on nothing else."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from weft.driver.congestion.algorithms import ALGORITHMS
from weft.driver.terms.settings import fields

from ..settings import PMTUS, BadSetting, BadSettings, Setting, check
from ..wan.experiment import WIRE_BYTES
from .description import MARKINGS, RED, Fabric
from .named import NAMES, is_topology, named
from .recovery import IRN
from .recovery import NAMES as RECOVERIES
from .toml_file import read
from .topologies import Shape

CONTROL_BYTES = 90      # of a control frame on the wire


@dataclass(frozen=True)
class FabricExperiment:
    """Flows over a fabric; a TOML file of a fabric states rates, delays, buffers and flows itself.

    Raises
    ------
    BadSettings
    """

    fabric: Annotated[str, Setting(f"Topology: {NAMES}, with -N for N flows, or a TOML file.")] = "dumbbell"
    algorithm: Annotated[str, Setting("Congestion control of every flow.", choices=tuple(ALGORITHMS))] = "dcqcn"
    tuning: Annotated[str, Setting("Settings of the algorithm: NAME=VALUE, separated by ';'.")] = ""
    recovery: Annotated[str, Setting("What senders do after a loss.", choices=RECOVERIES)] = "adamap"
    flows: Annotated[int, Setting("Number of flows.", least=1, most=1024)] = 2
    host_gbps: Annotated[float, Setting("Rate of the hosts' links.", unit="Gb/s", least=0.1, most=1600)] = 100.0
    bottleneck_gbps: Annotated[float, Setting("Rate of the bottleneck.", unit="Gb/s", least=0.1, most=1600)] = 100.0
    rtt_us: Annotated[float, Setting("Round trip time without transmission.",
                                     unit="microseconds", least=0.1, most=400_000)] = 10.0
    rtt_ratio: Annotated[float, Setting("Factor of the round trip time of every other flow.",
                                        least=1, most=100)] = 1.0
    buffer_kib: Annotated[int, Setting("Buffer of each switch.", unit="KiB", least=16, most=1 << 24)] = 32768
    marking: Annotated[str, Setting("ECN marking.", choices=MARKINGS)] = RED
    mark_from_kib: Annotated[float, Setting("Queue from which packets are marked.", unit="KiB",
                                            least=0, most=1 << 24)] = 100.0
    mark_to_kib: Annotated[float, Setting("Queue from which RED marks every packet.", unit="KiB",
                                          least=0, most=1 << 24)] = 400.0
    mark_chance: Annotated[float, Setting("RED: chance of a mark just below mark_to_kib.", least=0, most=1)] = 0.1
    pfc: Annotated[bool, Setting("Priority-based flow control of all switches, from 512 KiB of a link on.")] = False
    trim: Annotated[bool, Setting("Full switches send on the headers of packets.")] = False
    jitter_us: Annotated[float, Setting("Largest additional delay of each packet on the hosts' links.",
                                        unit="microseconds", least=0, most=1e5)] = 1.0
    loss: Annotated[float, Setting("Chance of each packet to be lost at the bottleneck.", least=0, most=0.5)] = 0.0
    pmtu: Annotated[int, Setting("Payload of each packet.", unit="bytes", choices=PMTUS)] = 4096
    transfer_mib: Annotated[float, Setting("Data of each flow; 0: endless.", unit="MiB", least=0, most=1 << 20)] = 0.0
    ack_every: Annotated[int, Setting("Packets after which a flow asks for an acknowledgement.",
                                      unit="packets", least=1, most=1024)] = 4
    cnp_us: Annotated[float, Setting("Time between two congestion notifications of a flow.",
                                     unit="microseconds", least=1, most=1e6)] = 50.0
    time_out_us: Annotated[float, Setting("Least time without progress after which a sender probes.",
                                          unit="microseconds", least=1, most=1e7)] = 1000.0
    warmup_rtts: Annotated[float, Setting("Round trips before the measurement.", least=0, most=1e6)] = 500.0
    measured_rtts: Annotated[float, Setting("Round trips of the measurement.", least=1, most=1e6)] = 1000.0
    seed: Annotated[int, Setting("Seed of every random choice.", least=0, most=(1 << 63) - 1)] = 1

    def __post_init__(self) -> None:
        check(self)
        self.settings_of_algorithm()
        if not is_topology(self.fabric) and not self.fabric.endswith(".toml"):
            raise BadSetting("fabric", self.fabric, f"choose one of {NAMES}, with -N for N flows, or a file *.toml")

    def with_(self, **changes: Any) -> "FabricExperiment":
        """Return a copy with some fields changed, checked again."""
        return replace(self, **changes)

    def settings_of_algorithm(self) -> dict[str, Any]:
        """Return the settings in ``tuning``. Raises BadSetting."""
        kind, found = ALGORITHMS[self.algorithm][1], {}
        for part in filter(None, self.tuning.split(";")):
            name, _, text = part.partition("=")
            if name not in fields(kind):
                raise BadSetting("tuning", part, f"{self.algorithm} has {', '.join(fields(kind)) or 'no settings'}")
            found[name] = fields(kind)[name].read(text)
        kind(**found)
        return found

    def build(self) -> Fabric:
        """Return the fabric. Raises BadSettings."""
        if not is_topology(self.fabric):
            return self._checked(read(Path(self.fabric)))
        switch = {name: getattr(self, name) for name in ("buffer_kib", "marking", "mark_from_kib", "mark_to_kib",
                                                         "mark_chance", "pfc", "trim")}
        rtts = (self.rtt_us,) if self.rtt_ratio == 1 else (self.rtt_us, self.rtt_us * self.rtt_ratio)
        return self._checked(named(self.fabric, Shape(
            flows=self.flows, host_gbps=self.host_gbps, bottleneck_gbps=self.bottleneck_gbps, rtts_us=rtts,
            loss=self.loss, jitter_us=self.jitter_us, switch=switch,
            packets=-(-round(self.transfer_mib * (1 << 20)) // self.pmtu))))

    def _checked(self, fabric: Fabric) -> Fabric:
        if self.recovery != "adamap" and any(switch.trim for switch in fabric.switches):
            raise BadSettings(f"trim reports single lost packets to a sender, which {self.recovery} does not use; "
                              "choose recovery adamap")
        return fabric

    @property
    def packet_bytes(self) -> int:
        """Packet on the wire."""
        return self.pmtu + WIRE_BYTES

    def config(self, longest_ns: float) -> dict[str, Any]:
        """Return the configuration of hosts, for a longest round trip time."""
        scheme = RECOVERIES.index(self.recovery)
        window = math.ceil(self.bottleneck_gbps * longest_ns / 8 / self.packet_bytes)      # IRN: a BDP
        return {"packet_bytes": self.packet_bytes, "control_bytes": CONTROL_BYTES, "ack_every": self.ack_every,
                "cnp_interval": self.cnp_us * 1e3, "time_out": max(self.time_out_us * 1e3, 2.125 * longest_ns),
                "repath": 1, "recovery": scheme, "window": window if scheme == IRN else 1 << 60,
                "span": 1 << (4 * window).bit_length() if scheme == IRN else 1}
