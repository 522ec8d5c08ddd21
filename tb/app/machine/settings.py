"""Settings of ``weft machine``."""

from dataclasses import dataclass
from typing import Annotated

from weft.model.settings import PRESET, Setting, check
from weft.tb.app.serve.environment import BUILD_ROOT
from weft.tb.app.serve.settings import HostSettings

BACKENDS = ("functional", "model")


@dataclass(frozen=True, kw_only=True)
class MachineSettings(HostSettings):
    """Hosts whose cards are PCI devices of virtual machines. Raises BadSetting."""

    backend: Annotated[str, Setting("Cards: functional in Python, or a timing model.",
                                    choices=BACKENDS)] = "functional"
    preset: Annotated[str, PRESET] = "full"
    folder: Annotated[str, Setting("Folder of the sockets.", metavar="PATH")] = str(BUILD_ROOT / "machine")

    def __post_init__(self) -> None:
        check(self)
