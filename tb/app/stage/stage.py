"""Back ends of a stage, and the function that runs programs on one."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from weft.model.settings import PRESET, RTT_US, SEED, Setting, chance, check

if TYPE_CHECKING:
    from weft.tb.app.stage.host import Program


@dataclass(frozen=True)
class Stage:
    """Two cards and the link between them. Raises BadSetting."""

    preset: Annotated[str, PRESET] = "test"
    loss: Annotated[float, chance("Chance of a loss of each frame, in both directions.")] = 0.0
    rtt_us: Annotated[float, RTT_US] = 0.0
    seed: Annotated[int, SEED] = 1

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Backend:
    """Description of a back end."""

    about: str
    clock: str          # about its simulated time
    messages: int       # default amounts of a program, which take some seconds
    bytes: int


# New back ends are added only here.
BACKENDS = {
    "functional": Backend(
        "Functional cards: the behaviour without time, in Python.",
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

BACKEND = Setting("Cards: functional in Python, a timing model, or RTL.", choices=tuple(BACKENDS))


def play(programs: "tuple[Program, Program]", *, backend: str = "functional", stage: Stage | None = None,
         progress: Path | None = None, **arguments: Any) -> list[Any]:
    """Run ``program(host, **arguments)`` of both hosts to their ends; return their results.

    Parameters
    ----------
    programs
        Functions of a module's top level, one for each :class:`~weft.tb.app.stage.host.Host`: for the RTL another
        process imports them. JSON must be able to represent arguments and results.
    backend
        One of :data:`BACKENDS`.
    progress
        File for the progress lines of :mod:`weft.tb.sim.flow.progress`.

    Raises
    ------
    ProgramFailed
        On the RTL, with a sentence; other back ends raise the error of the program itself.
    """
    if backend == "rtl":
        from weft.tb.app.stage.rtl_cases import play_rtl
        return play_rtl(stage or Stage(), programs, arguments, progress)
    from weft.tb.app.stage.loop import play_loop
    return play_loop(stage or Stage(), programs, arguments, progress, backend)
