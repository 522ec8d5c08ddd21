"""``weft machine``, ``weft devices``: cards as PCI devices of virtual machines, and the cards of this machine."""

import socket

from weft.tb.app.machine.settings import MachineSettings
from weft.tb.cli.serve import check_sockets, on_end, report


def machine(settings: MachineSettings):
    """Serve simulated cards as PCI devices of virtual machines (vfio-user), a socket for each, until interrupted."""
    check_sockets(settings, socket.SOCK_STREAM)
    from weft.tb.app.machine.machine import serve
    ended = []
    on_end(lambda *_: ended.append(True))
    serve(settings, report, ended)


def devices():
    """List the cards of this machine: PCI address, driver, IOMMU group, and the step that is missing to open each."""
    from weft.driver.pci.survey import NO_CARD, survey
    print("\n".join(map(str, survey())) or NO_CARD)
