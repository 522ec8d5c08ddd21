"""``weft link``: faults on the links of a running ``weft serve``."""

import json
from pathlib import Path
from typing import Annotated

from weft.model.settings import Setting
from weft.tb.app.serve.commands import COMMANDS, ask, given
from weft.tb.app.serve.environment import FOLDER
from weft.tb.cli.options import refuse

ABOUT = {
    "show": "Show the links, rules and counts.",
    "set": "Change the impairments of one direction or of all; options that are not given keep their value.",
    "cut": "Lose every frame that a host sends, or that all hosts send, until `weft link restore`.",
    "restore": "End the effect of `weft link cut`.",
    "rule": "Add a rule that drops, duplicates, damages or delays chosen packets; print its number.",
    "clear": "Remove rules and schedule, and restore the impairments of the start and the random sequences.",
    "schedule": "Run a schedule of faults from now on, in addition to the rules.",
}


def _command(do, kind):
    """Return a function of the settings ``kind`` that sends a command to the daemon."""
    def command(
        settings: kind,
        folder: Annotated[Path, Setting("Folder of the daemon's sockets.", metavar="PATH")] = FOLDER,
        as_json: Annotated[bool, Setting("Print the state afterwards, as JSON.", names=("--json",))] = False,
    ):
        words = given(settings)
        if do in ("set", "schedule") and not words.keys() - {"source"}:
            refuse(f"weft link {do} needs an option; weft link {do} --help lists them")
        response = ask(folder, {"do": do, **words})
        for text in [json.dumps(response["state"], indent=2)] if as_json else response["sentences"]:
            print(text)
    command.__name__, command.__doc__ = do, ABOUT[do]
    return command


LINK_COMMANDS = [_command(do, kind) for do, kind in COMMANDS.items()]
