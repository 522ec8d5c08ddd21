"""Linux guests with the RTL of two cards: guests and cases are served from inside the simulator.

One thread runs the cases, and another one takes turns with the simulation.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cocotb
from cocotb.task import bridge

from weft.tb.app.machine.rtl_machine import GuestCards, RtlMachine
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.app.serve.relay import Line, serve_by_simulator
from weft.tb.sim.flow.bench import given, leave
from weft.tb.verify.linux.cases import RTL
from weft.tb.verify.linux.image import kernel_and_initrd, qemu
from weft.tb.verify.linux.lab import Lab
from weft.tb.verify.linux.run import rows_of

SLOW = 100      # a register read takes as many times longer than that of a functional card


class RtlLab(Lab):
    """Lab that a bridge thread makes, serves and closes.

    Parameters
    ----------
    folder, options
        As in :class:`Lab`.
    env : GuestCards
        Started.
    programs
        Result of :meth:`Lab._made`.
    """

    def __init__(self, folder, env, programs, **options):
        self._env, self._made = env, lambda: programs
        super().__init__(folder, backend="rtl", slow=SLOW, **options)

    def _started(self, settings):
        return RtlMachine(settings, self.sentences.append, self._env)

    def _end(self):
        return

    def rows(self, report):
        """Return the rows of all cases."""
        with ThreadPoolExecutor(1) as pool:
            rows = pool.submit(lambda: list(rows_of(self, "rtl", RTL, report)))
            rows.add_done_callback(lambda _: self._ended.set())
            self.serve(self.machine)
            return rows.result()


def rows_on_rtl(report):
    """Return the rows of cards as RTL; each is reported by a sentence as well."""
    with tempfile.TemporaryDirectory(prefix="weft-linux-") as folder:
        programs = qemu(), *map(str, kernel_and_initrd(Path(folder)))
        settings = MachineSettings(folder=folder, backend="rtl")
        return serve_by_simulator(__file__, settings, report, programs=programs)


@cocotb.test()
async def guests(dut):
    asked = given()
    settings, line = MachineSettings(**asked["settings"]), Line(asked["line"])
    env = GuestCards.of(dut, settings)
    await env.start()

    def run():
        with RtlLab(Path(settings.folder), env, asked["programs"], loss=0) as lab:
            return lab.rows(line.report)

    leave(await bridge(run)())
    env.finish()
