"""Back ends and daemons of `weft serve`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.driver.serve.daemon import Daemon
from weft.driver.serve.simulated_time import SimulatedDaemon
from weft.tb.app.serve.capture import capture
from weft.tb.app.serve.functional import FunctionalWorld
from weft.tb.app.serve.settings import Settings
from weft.tb.app.serve.simulated import LoopWorld, ModelWorld, WallModelWorld
from weft.tb.app.serve.udp_link import UdpLink

if TYPE_CHECKING:
    from weft.tb.app.serve.rtl_world import RtlWorld

WORLDS: dict[tuple[str, str], type[FunctionalWorld]] = {
    ("functional", "wall"): FunctionalWorld, ("functional", "sim"): LoopWorld,
    ("model", "wall"): WallModelWorld, ("model", "sim"): ModelWorld}


def serve_here(settings: Settings, say: Callable[[str], None], ended: object) -> None:
    """Serve cards in Python with :func:`serve`."""
    peer = settings.peer()
    world = WORLDS[settings.backend, settings.time](
        settings.hosts, loss=settings.loss, delay_ns=settings.delay_ns, seed=settings.seed, preset=settings.card,
        first=settings.first, uplink=UdpLink(*peer) if peer else None)
    captures = capture(world, settings.capture)
    serve(world, settings, say, ended)
    captures.close()


def serve(world: "FunctionalWorld | RtlWorld", settings: Settings, say: Callable[[str], None], ended: object) -> None:
    """Serve a back end until ``ended`` is true; then report the numbers of its frames."""
    Path(settings.folder).mkdir(parents=True, exist_ok=True)
    daemon = (SimulatedDaemon if settings.time == "sim" else Daemon)(world, settings.folder, say)
    say(f"hosts {', '.join(settings.hosts)} are served below {settings.folder}; programs: weft run --host "
        f"{settings.hosts[0]} -- PROGRAM")
    while not ended:
        daemon.turn()
    daemon.close()
    world.close()
    for sentence in world.summary():
        say(sentence)
