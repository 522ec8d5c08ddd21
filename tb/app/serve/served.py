"""Back ends and daemons of `weft serve`."""

import gc
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.driver.serve.control import Control
from weft.driver.serve.daemon import Daemon
from weft.driver.serve.simulated_time import SimulatedDaemon
from weft.tb.app.serve.capture import capture
from weft.tb.app.serve.direct import DirectBackend
from weft.tb.app.serve.faults import Faults
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.pci_backend import PciBackend
from weft.tb.app.serve.settings import Settings
from weft.tb.app.serve.simulated import LoopBackend, ModelBackend, WallClockModelBackend
from weft.tb.app.serve.switch import UdpLink

if TYPE_CHECKING:
    from weft.tb.app.serve.rtl_backend import RtlBackend

GARBAGE = 50_000      # objects that are made before garbage is collected
BACKENDS: dict[tuple[str, str], type[FunctionalBackend]] = {
    ("direct", "wall"): DirectBackend, ("functional", "wall"): FunctionalBackend, ("functional", "sim"): LoopBackend,
    ("model", "wall"): WallClockModelBackend, ("model", "sim"): ModelBackend}


def serve_here(settings: Settings, report: Callable[[str], None], ended: object) -> None:
    """Serve cards in Python with :func:`serve`."""
    peer = settings.peer()
    if settings.cards == "pci":
        users = frozenset(pwd.getpwnam(name).pw_uid for name in settings.users)
        serve(PciBackend(settings.hosts, settings.device, delay_ns=settings.delay_ns, first=settings.first,
                         users=users, command_timeout_ns=round(settings.command_timeout_ms * 1_000_000),
                         congestion=settings.congestion), settings, report, ended)
        return
    backend = BACKENDS[settings.cards, settings.time](
        settings.hosts, delay_ns=settings.path_ns, seed=settings.seed, preset=settings.card,
        first=settings.first, uplink=UdpLink(*peer) if peer else None,
        network=settings.network() if settings.fabric else None, congestion=settings.congestion)
    captures = capture(backend, settings.capture)
    serve(backend, settings, report, ended)
    captures.close()


def serve(backend: "FunctionalBackend | PciBackend | RtlBackend", settings: Settings, report: Callable[[str], None],
          ended: object) -> None:
    """Serve a back end until ``ended`` is true; then report the numbers of its frames."""
    Path(settings.folder).mkdir(parents=True, exist_ok=True)
    faults = Faults(backend, settings, report)
    daemon = (SimulatedDaemon if settings.time == "sim" else Daemon)(backend, settings.folder, report)
    control = Control(settings.control, faults.answer)
    daemon.watch(control.fileno(), control.serve)
    report(f"hosts {', '.join(settings.hosts)} are served below {settings.folder} by the {settings.cards} back end; "
           f"programs: weft run --host {settings.hosts[0]} -- PROGRAM")
    # Cards and drivers stay. Collecting garbage among them took as long as all other work of a registration.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    while not ended:
        daemon.turn()
    control.close()
    daemon.close()
    backend.close()
    for sentence in faults.sentences():
        report(sentence)
