"""``weft machine``, ``weft linux``, ``weft devices``: cards in virtual machines, cards of this machine."""

import socket
from typing import Annotated

import typer

from weft.model.settings import Setting
from weft.tb.app.machine.settings import BACKENDS, MachineSettings
from weft.tb.cli.serve import check_sockets, on_end, report


def machine(settings: MachineSettings):
    """Serve simulated cards as PCI devices of virtual machines (vfio-user), a socket for each, until interrupted."""
    check_sockets(settings, socket.SOCK_STREAM)
    if settings.backend == "rtl":
        from weft.tb.app.machine.rtl_cases import serve_rtl
        serve_rtl(settings, report, on_end)
    else:
        from weft.tb.app.machine.machine import serve
        ended = []
        on_end(lambda *_: ended.append(True))
        serve(settings, report, ended)


def linux(
    backend: Annotated[str | None, Setting("Cards of this kind alone: functional in Python, a timing model, or RTL.",
                                           choices=BACKENDS, default_text="all")] = None,
    short: Annotated[bool, Setting("One machine with two functional cards.")] = False,
):
    """Test Linux guests of QEMU with cards: driver, kernel, programs, hardware model; JSON in sim_build/reports."""
    from weft.tb.verify.linux.run import run, run_short
    raise typer.Exit(run_short() if short else run((backend,) if backend else BACKENDS))


def devices():
    """List the cards of this machine: PCI address, driver, IOMMU group, and the step that is missing to open each."""
    from weft.driver.pci.survey import NO_CARD, survey
    print("\n".join(map(str, survey())) or NO_CARD)
