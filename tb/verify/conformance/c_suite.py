"""Program of the conformance suite: its sources, its cases, and its compilation."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from weft.driver.ibverbs.build import CannotBuild, compiler, missing

FOLDER = Path(__file__).resolve().parent / "suite"
NAME = "weft-conformance"
OPTIONS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror")
_MACRO = re.compile(r'^#define (\w+) ("[^\n]*")$', re.MULTILINE)
_CASE = re.compile(r'^CASE\((\w+),\s+(?:"([^"\n]*)"|(\w+))\)', re.MULTILINE)


class Case(NamedTuple):
    """Case of the suite."""

    subject: str
    name: str
    rule: str


def sources() -> list[Path]:
    """Return the C files of the suite, in the order of its cases."""
    return sorted(FOLDER.glob("*.c"))


def cases() -> list[Case]:
    """Return the cases, read from the sources."""
    found = []
    for file in sources():
        text = file.read_text()
        rules = {name: value.strip('"') for name, value in _MACRO.findall(text)}
        found += [Case(file.stem, name, rule or rules[macro]) for name, rule, macro in _CASE.findall(text)]
    return found


def build(folder: str | Path) -> Path:
    """Compile the program in ``folder`` if it is older than its sources, linked with the machine's libibverbs.

    The program uses the libibverbs that it finds when it starts. Returns its path. Raises CannotBuild.
    """
    if sentence := missing():
        raise CannotBuild(sentence)
    program = Path(folder, NAME)
    program.parent.mkdir(parents=True, exist_ok=True)
    newest = max(file.stat().st_mtime for file in FOLDER.glob("*.[ch]"))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    fresh = program.with_suffix(".new")
    done = subprocess.run([compiler(), *OPTIONS, "-o", fresh, *sources(), "-libverbs", "-lpthread"],
                          capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"the conformance suite does not compile:\n{done.stderr}")
    fresh.replace(program)
    return program
