"""Program of the Linux guest: the survey of its cards, or ``weft serve`` with these options.

The command line itself needs packages that the guest does not have.
"""

import itertools
import signal
import sys

from weft.driver.pci.survey import survey
from weft.model.settings import fields
from weft.tb.app.serve.served import serve_here
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.flow.failure import Failure


def main(words):
    if words == ["devices"]:
        for found in survey():
            print(found)
        return
    known, ended = fields(Settings), []
    given = {name.removeprefix("--").replace("-", "_"): value for name, value in itertools.pairwise(words)
             if name.startswith("--")}
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    serve_here(Settings(**{name: known[name].read(value) for name, value in given.items()}),
               lambda sentence: print(sentence, flush=True), ended)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"weft: {failure}")
