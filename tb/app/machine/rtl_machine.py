"""Cards as RTL at the sockets of virtual machines, inside the simulator."""

from collections.abc import Callable, Mapping
from typing import Any

from cocotb.task import resume
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from weft.hdl.contract.params import preset
from weft.hdl.contract.pci import PciFunction
from weft.tb.app.machine.endpoints import Endpoints
from weft.tb.app.machine.guest_host import GuestHost
from weft.tb.app.machine.rtl_function import RtlFunction
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig, TwoCards

STEP_NS = 200         # simulated time between two looks at the sockets
QUIET_NS = 5_000      # the cards are idle after this time without an access and without a frame
REST_S = 0.25         # wall-clock time of a step while they are idle


class GuestCards(TwoCards):
    """Two cards whose hosts are virtual machines."""

    host_type = GuestHost

    @classmethod
    def of(cls, dut: Any, settings: MachineSettings) -> "GuestCards":
        """Return the cards and the link of these settings."""
        link = settings.config()
        return cls(dut, EnvConfig(link, link, vectors=preset(settings.card).msix_vectors), settings.seed)


class RtlMachine(Endpoints):
    """Functions, endpoints and links of the hosts of :class:`GuestCards`; a single bridge thread uses all of it.

    Simulated time advances by :data:`STEP_NS` between messages, and during each access of a card, which is answered in
    its order: the simulation and the sockets take turns in one loop. While the cards are idle, time hardly advances.

    Parameters
    ----------
    settings, report
        As in :class:`Endpoints`.
    env : GuestCards
        Started.
    """

    functions: Mapping[str, RtlFunction]

    def __init__(self, settings: MachineSettings, report: Callable[[str], object], env: GuestCards) -> None:
        self._env, self._sides = env, dict(zip(settings.hosts, SIDES, strict=True))
        super().__init__(settings, report, {name: env.sides[side].link for name, side in self._sides.items()})

    def function(self, name: str, description: PciFunction, report: Callable[[str], object]) -> RtlFunction:
        return RtlFunction(description, self._env.sides[self._sides[name]], report)

    @property
    def _quiet(self) -> bool:
        hosts = [self._env.host(side) for side in SIDES]
        return not self._env.frames_in_flight and not any(host.reading for host in hosts) \
            and get_sim_time("ns") - max(host.active_ns for host in hosts) >= QUIET_NS

    def turn(self) -> None:
        if not self.serve() and self._quiet:
            self.wait(REST_S)
        self._pass()

    @resume
    async def _pass(self) -> None:
        await Timer(STEP_NS, "ns")
