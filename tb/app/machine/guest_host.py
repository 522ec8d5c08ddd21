"""Root complex of a virtual machine, whose memory is what the machine has mapped."""

from collections import deque
from typing import Any

from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import Tlp

from weft.driver.vfio_user.dma import LINE, Unmapped
from weft.driver.vfio_user.simulated_function import SimulatedFunction
from weft.tb.sim.pcie.host import Host
from weft.tb.sim.pcie.lean_pcie import ROOT_ID

INTERRUPTS, INTERRUPT_BYTES = 0xFEE0_0000, 1 << 20      # on a PC, a write there is an interrupt
COMPLAINTS_MAX = 100


class MappedSpace:
    """Memory of a machine as an address space of the root complex.

    Parameters
    ----------
    function : SimulatedFunction
    """

    def __init__(self, function: SimulatedFunction) -> None:
        self._function = function

    def find_regions(self, address: int, length: int) -> bool:
        """Accept every access: :meth:`GuestHost.refusal` has checked a read, and :meth:`write` checks the others."""
        return True

    async def read(self, address: int, length: int) -> bytes:
        return self._function.dma.read(address, length)

    async def write(self, address: int, data: bytes) -> None:
        """Write line by line: a processor that waits for a phase bit must see the whole line with it."""
        try:
            while data:
                count = LINE - address % LINE
                self._function.dma.write(address, bytes(data[:count]))
                address, data = address + count, data[count:]
        except Unmapped as error:
            self._function.unsupported(str(error))


class GuestHost(Host):
    """Root complex with the memory of a function's client. Warnings of the models do not end the simulation.

    Attributes
    ----------
    active_ns : float
        Simulated time of the last access in either direction.
    """

    def __init__(self, config: Any = None, rng: Any = None) -> None:
        super().__init__(config, rng)
        self.strict, self.complaints = False, deque(maxlen=COMPLAINTS_MAX)
        self.active_ns = 0.0
        self._function: SimulatedFunction | None = None

    def serve(self, function: SimulatedFunction) -> None:
        """Access the memory of a function's client from now on. The card must have been enumerated."""
        self._function, self.mem_address_space = function, MappedSpace(function)

    def touch(self) -> None:
        """Note the time of an access."""
        self.active_ns = get_sim_time("ns")

    def refusal(self, tlp: Any) -> Any:
        assert self._function is not None, "a read before the service"
        self.touch()
        try:
            self._function.dma.read(tlp.address, 4 * tlp.length)
        except Unmapped as error:
            self._function.unsupported(str(error))
            return Tlp.create_ur_completion_for_tlp(tlp, ROOT_ID)
        return None

    async def handle_mem_write_tlp(self, tlp: Any) -> None:
        assert self._function is not None, "a write before the service"
        self.touch()
        if INTERRUPTS <= tlp.address < INTERRUPTS + INTERRUPT_BYTES:
            self._function.raise_vector(int.from_bytes(tlp.get_data()[:4], "little"))
        else:
            await super().handle_mem_write_tlp(tlp)
