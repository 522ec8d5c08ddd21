"""Maps of regions by the library, for a card that is hardware, with a stand-in for the kernel."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from weft.driver.ibverbs.build import compiler
from weft.driver.linux.foreign import FIRST
from weft.driver.terms.program_mapping import ProgramMapping, Way
from weft.model.functional.host import FunctionalDevice
from weft.tb.app.serve.environment import environment_of
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.test.app.serve.test_memories import GOOD, REFUSED
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.local import left_over, local_daemon

LIMIT_S, STEP = 200, 1 << 32


class MappingDevice(FunctionalDevice):
    """Functional card with the mapping of a card that is hardware. It accesses programs' memory without it.

    Attributes
    ----------
    ranges : dict of int to (address, bytes)
        Ranges of programs by the addresses that were assigned to them.
    """

    way: Way

    def __init__(self, loop, **options):
        super().__init__(loop, **options)
        self.file, self.ranges = os.memfd_create("container"), {}

    @property
    def for_programs(self):
        return ProgramMapping(self.way, self.file, 7 if self.way is Way.IOMMUFD else 0)

    def attach(self, memory, address, size, va, page_bytes):
        buffer = super().attach(memory, address, size, va, page_bytes)
        buffer.dma = FIRST + len(self.ranges) * STEP
        self.ranges[buffer.dma] = address, size
        return buffer


@pytest.mark.parametrize("way", [Way.VFIO, Way.IOMMUFD])
def test_every_region_is_mapped_at_its_assigned_address(way, tmp_path, library):
    shim, maps = tmp_path / "kernel.so", tmp_path / "maps"
    subprocess.run([compiler(), "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", shim,
                    Path(__file__).with_name("mapping_kernel.c"), "-ldl"], check=True)
    program, ended = compiled("memories", tmp_path, library), threading.Event()

    class Backend(FunctionalBackend):
        device_type = type("Device", (MappingDevice,), {"way": way})

    with local_daemon(backend_type=Backend) as (daemon, printed):
        def turn():
            while not ended.is_set():
                daemon.turn()

        thread = threading.Thread(target=turn)
        thread.start()
        environment = environment_of(daemon.paths["a"])
        environment |= {"MAPS": str(maps), "LD_PRELOAD": f"{shim}:{environment['LD_PRELOAD']}", "WEFT_LOG": "1"}
        try:
            done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
            while daemon.clients:
                ended.wait(0.01)
        finally:
            ended.set()
            thread.join()
        assert not printed and not any(any(found) for found in left_over(daemon.backend).values())
        device = daemon.backend.devices[0]
        os.close(device.file)
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert {kind: lines.get(kind) for kind in GOOD} == dict.fromkeys(GOOD, "good")
    assert all(lines[kind].startswith("refused, ") for kind in REFUSED)
    asked = [tuple(map(int, line.split())) for line in maps.read_text().splitlines()]
    assert all(device.ranges[dma] == (address, size) for address, size, dma, _ in asked)
    assert len({dma for _, _, dma, _ in asked}) == len(asked) > len(GOOD)
    assert len(device.ranges) - len(asked) == len(REFUSED)      # the daemon accepted what the kernel refused
    assert {write for *_, write in asked} == {0, 1}             # read-only memory is mapped for reads
    assert done.stderr.count("the kernel does not map ") >= len(REFUSED)
