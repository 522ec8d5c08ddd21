"""What `weft serve` serves: settings, and the worlds and daemons that they name."""

from dataclasses import dataclass
from pathlib import Path

from weft.driver.serve.daemon import Daemon
from weft.driver.serve.simulated_time import SimulatedDaemon
from weft.tb.app.serve.capture import capture
from weft.tb.app.serve.functional import FunctionalWorld
from weft.tb.app.serve.simulated import LoopWorld, ModelWorld, WallModelWorld
from weft.tb.app.serve.udp_link import UdpLink


@dataclass(frozen=True)
class Settings:
    """Of a daemon and its world.

    Attributes
    ----------
    folder : str
        Where the sockets are made.
    hosts : list of str
    backend : str
        ``"functional"``, ``"model"`` or ``"rtl"``.
    time : str
        ``"wall"`` or ``"sim"``.
    loss : float
        Chance of every frame to get lost.
    delay_ns : int
        From a host to another one.
    seed : str
        Of every random choice of link, cards and drivers.
    preset : str
        Size of the cards.
    capture : str or None
        Folder of captures.
    link : tuple or None
        Arguments of :class:`UdpLink` to another daemon.
    first : int
        The last byte of the first host's addresses.
    """

    folder: str
    hosts: list
    backend: str = "functional"
    time: str = "wall"
    loss: float = 0.0
    delay_ns: int = 1_000
    seed: str = "1"
    preset: str = "full"
    capture: str | None = None
    link: tuple | None = None
    first: int = 1


WORLDS = {("functional", "wall"): FunctionalWorld, ("functional", "sim"): LoopWorld,
          ("model", "wall"): WallModelWorld, ("model", "sim"): ModelWorld}


def serve_here(settings, say, ended):
    """:func:`serve` cards in Python."""
    world = WORLDS[settings.backend, settings.time](
        settings.hosts, loss=settings.loss, delay_ns=settings.delay_ns, seed=settings.seed, preset=settings.preset,
        first=settings.first, uplink=UdpLink(*settings.link) if settings.link else None)
    captures = capture(world, settings.capture)
    serve(world, settings, say, ended)
    captures.close()


def serve(world, settings, say, ended):
    """Serve a world until ``ended`` is true; then tell what became of its frames."""
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
