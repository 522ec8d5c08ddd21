"""File of survivors: reasons why a fault that no test detects is not a gap.

``survivors.toml`` has two tables of ``"name of the mutant" = "one line"``. Table ``[equivalent]`` lists faults that are
not observable for a reason that the proof of :mod:`weft.tb.verify.mutate.equivalence` does not find; the fraction does
not count them, nor those that the proof finds. Table ``[accepted]`` lists observable faults that may stay undetected.
"""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_name("survivors.toml")
KINDS = ("equivalent", "accepted")


def explained(file=FILE):
    """Return ``{name: (kind, line)}`` of the file; raise ValueError with the reason if its format is wrong."""
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
