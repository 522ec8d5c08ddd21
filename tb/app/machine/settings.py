"""Settings of ``weft machine``."""

from dataclasses import dataclass
from typing import Annotated

from weft.model.settings import PRESET, BadSetting, Setting, check
from weft.tb.app.serve.environment import BUILD_ROOT
from weft.tb.app.serve.settings import RTL_HOSTS, RTL_HOSTS_WANTED, HostSettings

BACKENDS = ("functional", "model", "rtl")


@dataclass(frozen=True, kw_only=True)
class MachineSettings(HostSettings):
    """Hosts whose cards are PCI devices of virtual machines. Raises BadSetting."""

    backend: Annotated[str, Setting("Cards: functional in Python, a timing model, or RTL.",
                                    choices=BACKENDS)] = "functional"
    preset: Annotated[str | None, Setting("Size of the cards.", choices=PRESET.choices,
                                          default_text="full, of RTL test")] = None
    folder: Annotated[str, Setting("Folder of the sockets.", metavar="PATH")] = str(BUILD_ROOT / "machine")

    def __post_init__(self) -> None:
        check(self)
        if self.backend == "rtl" and len(self.hosts) != RTL_HOSTS:
            raise BadSetting("hosts", ",".join(self.hosts), RTL_HOSTS_WANTED)

    @property
    def card(self) -> str:
        """Name of the preset of the cards."""
        return self.preset or ("test" if self.backend == "rtl" else "full")
