"""The kept file of survivors: why a fault that no test notices is no gap.

``survivors.toml`` has two tables of ``"name of the mutant" = "one line"``: in ``[equivalent]`` faults that can never
be seen from outside, for a reason that the proof of :mod:`weft.tb.verify.mutate.equivalence` does not find; they are
left out of the fraction, as those it finds. In ``[accepted]`` faults that could be seen and may stay unnoticed.
"""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_name("survivors.toml")
KINDS = ("equivalent", "accepted")


def explained(file=FILE):
    """``{name: (kind, line)}`` of the file.

    Raises
    ------
    ValueError
        With a sentence, if it is of another form.
    """
    tables = tomllib.loads(file.read_text()) if file.exists() else {}
    if extra := set(tables) - set(KINDS):
        raise ValueError(f"{file.name} has tables {', '.join(sorted(extra))}; they are {' and '.join(KINDS)}")
    found = {}
    for kind, lines in tables.items():
        for name, line in lines.items():
            if not isinstance(line, str) or not line.strip() or "\n" in line:
                raise ValueError(f"{file.name} explains {name!r} not in one line")
            if name in found:
                raise ValueError(f"{file.name} explains {name!r} twice")
            found[name] = kind, line
    return found
