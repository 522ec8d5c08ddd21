"""Maps of regions by the library, for a card that is hardware, with a stand-in for the kernel."""

import collections
import contextlib
import os
import subprocess
import threading
from pathlib import Path

import pytest

from weft.driver.ibverbs.build import compiler
from weft.driver.linux.foreign import FIRST
from weft.driver.terms.program_mapping import MappingMethod, ProgramMapping
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
        Ranges of programs by the addresses that were assigned to them, or by their number.
    """

    method: MappingMethod

    def __init__(self, loop, **options):
        super().__init__(loop, **options)
        self.file, self.ranges = os.memfd_create("container"), {}

    @property
    def for_programs(self):
        return ProgramMapping(self.method, -1 if self.method is MappingMethod.LOCKED else self.file,
                              7 if self.method is MappingMethod.IOMMUFD else 0)

    def attach(self, memory, address, size, va, page_bytes):
        buffer = super().attach(memory, address, size, va, page_bytes)
        dma = FIRST + len(self.ranges) * STEP
        buffer.dma, self.ranges[dma] = 0 if self.method is MappingMethod.LOCKED else dma, (address, size)
        return buffer


@contextlib.contextmanager
def cards(way):
    """Yield a daemon of such cards, which serves in a thread, and the card of host a. Nothing of programs remains."""
    class Backend(FunctionalBackend):
        device_type = type("Device", (MappingDevice,), {"method": way})

    ended = threading.Event()
    with local_daemon(backend_type=Backend) as (daemon, printed):
        def turn():
            while not ended.is_set():
                daemon.turn()

        thread = threading.Thread(target=turn)
        thread.start()
        try:
            yield daemon, daemon.backend.devices[0]
            while daemon.clients:
                ended.wait(0.01)
        finally:
            ended.set()
            thread.join()
            for device in daemon.backend.devices:
                os.close(device.file)
        assert not printed and not any(any(found) for found in left_over(daemon.backend).values())


def result_of(daemon, *program, **more):
    environment = environment_of(daemon.paths["a"]) | {"WEFT_LOG": "1"}
    if preloaded := more.pop("preloaded", None):
        more["LD_PRELOAD"] = f"{preloaded}:{environment['LD_PRELOAD']}"
    done = subprocess.run(program, env=environment | more, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done


@pytest.mark.parametrize("way", [MappingMethod.VFIO, MappingMethod.IOMMUFD])
def test_every_region_is_mapped_at_its_assigned_address(way, tmp_path, library):
    shim, maps = tmp_path / "kernel.so", tmp_path / "maps"
    subprocess.run([compiler(), "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", shim,
                    Path(__file__).with_name("mapping_kernel.c"), "-ldl"], check=True)
    program, changes = (compiled(name, tmp_path, library)
                        for name in (Path(__file__).with_name("memories"), "regions"))
    with cards(way) as (daemon, device):
        done = result_of(daemon, program, preloaded=shim, MAPS=str(maps))
        count = len(device.ranges)
        assert result_of(daemon, changes, "changes", preloaded=shim, MAPS=str(tmp_path / "changes")).stdout == "good\n"
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert {kind: lines.get(kind) for kind in GOOD} == dict.fromkeys(GOOD, "good")
    assert all(lines[kind].startswith("refused, ") for kind in REFUSED)
    asked, changed = ([tuple(map(int, line.split())) for line in path.read_text().splitlines()]
                      for path in (maps, tmp_path / "changes"))
    assert all(device.ranges[dma] == (address, size) for address, size, dma, _ in (*asked, *changed))
    assert len({dma for _, _, dma, _ in asked}) == len(asked) > len(GOOD)
    assert count - len(asked) == len(REFUSED)      # the daemon accepted what the kernel refused
    assert {write for *_, write in asked} == {0, 1}             # read-only memory is mapped for reads
    assert done.stderr.count("the kernel does not map ") >= len(REFUSED)


def test_pages_that_a_write_allocates_are_those_of_the_card(tmp_path, library):
    """A card with physical addresses would write to the page of zeros, or to a file's page, otherwise."""
    program = compiled("regions", tmp_path, library)
    with cards(MappingMethod.LOCKED) as (daemon, device):
        assert result_of(daemon, program, "rights").stdout == "good\n"
        # The memory of two more regions of the program lies elsewhere.
        looked_at = collections.Counter(device.ranges.values())
    assert sorted(looked_at.values())[-1] == 2, looked_at
