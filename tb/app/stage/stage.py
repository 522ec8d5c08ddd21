"""The back ends of a stage, and how programs get onto one."""

from dataclasses import dataclass
from typing import Annotated

from weft.model.settings import PRESET, RTT_US, SEED, Setting, chance, check


@dataclass(frozen=True)
class Stage:
    """Two cards and the link between them.

    Raises
    ------
    BadSetting
    """

    preset: Annotated[str, PRESET] = "test"
    loss: Annotated[float, chance("Chance of a loss of each frame, in both directions.")] = 0.0
    rtt_us: Annotated[float, RTT_US] = 0.0
    seed: Annotated[int, SEED] = 1

    def __post_init__(self):
        check(self)


@dataclass(frozen=True)
class Backend:
    """What plays the cards.

    Attributes
    ----------
    about, clock : str
        One sentence each: what it is, and what its simulated time means.
    messages, bytes : int
        What a program moves there in some seconds, if nobody says how much.
    """

    about: str
    clock: str
    messages: int
    bytes: int


# The one place to add a back end.
BACKENDS = {
    "functional": Backend(
        "Functional cards: what must happen, in Python.",
        "simulated: frames leave at 100 Gb/s and take half a round trip; cards and drivers take no time",
        messages=1000, bytes=64 << 20),
    "model": Backend(
        "The card model in Python, calibrated against the RTL, under hosts that answer a read in 1 µs (±10 %).",
        "simulated: times of card, PCIe and link as calibrated against the RTL at 250 MHz; drivers take none",
        messages=200, bytes=8 << 20),
    "rtl": Backend(
        "The RTL of both cards in Verilator, under PCIe hosts that answer a read in 1 µs (±10 %).",
        "simulated: clock cycles of the RTL at 250 MHz; PCIe and the link take their time, drivers take none",
        messages=50, bytes=2 << 20),
}

BACKEND = Setting("Cards: functional in Python, a model in time, or the gateware.", choices=tuple(BACKENDS))


def play(programs, *, backend="functional", stage=None, progress=None, **arguments):
    """Run ``program(host, **arguments)`` of both hosts to their ends; their results.

    Parameters
    ----------
    programs : (callable, callable)
        Functions of a module's top level, one for each :class:`~weft.tb.app.stage.host.Host`: on the RTL another
        process looks them up there. Arguments and results are what JSON can hold.
    backend : str
        Of :data:`BACKENDS`.
    stage : Stage or None
    progress : path or None
        File that gets lines of :mod:`weft.tb.sim.flow.progress`.

    Raises
    ------
    ProgramFailed
        With a sentence, on the RTL; otherwise what a program raised.
    """
    if backend == "rtl":
        from weft.tb.app.stage.rtl_cases import play_rtl
        return play_rtl(stage or Stage(), programs, arguments, progress)
    from weft.tb.app.stage.loop import play_loop
    return play_loop(stage or Stage(), programs, arguments, progress, backend)
