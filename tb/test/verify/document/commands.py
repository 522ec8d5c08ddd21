"""Commands that the documents name, in fenced blocks, in text and in tables, and their keys.

The key of a command is its program with what selects the task: subcommand, target or module, the name of a benchmark,
and the options of :data:`SELECTING`. Commands of one key differ in files, addresses and numbers only.
"""

import itertools
import re
import shlex
import textwrap
from pathlib import Path

from weft.tb.verify.document import parts

ROOT = Path(__file__).resolve().parents[4]
DOCUMENTS = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in parts.documents(ROOT)}
PAST = "CHANGELOG.md"                                           # its commands may be gone
PAGES = ("docs/serve.md", "docs/direct.md", "docs/faults.md", "docs/programs.md")    # they run in test_commands.py
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
OURS = re.compile(r"(?:\w+=\S+ )*(?:sudo )?(?:\.venv/bin/)?(?:weft [a-z]|make [a-z]|python3? -m [a-z]|\.ci/run)")
# Options that select another task; a value is part of the key where the tasks differ by it.
SELECTING = {"--only": False, "--backend": True, "--plan": True, "--of": True, "--list": False, "--device": False,
             "--link": False, "--faults": False, "--place": False, "--board": False, "--cards": False, "--tap": False,
             "--qemu": False, "--short": False, "--network": False, "--timeline": False}


def blocks(text):
    """Return the commands of each block of a page, without prompts, comments, and the output after a prompt."""
    for language, block in FENCE.findall(text):
        if language in ("sh", "console"):
            lines = textwrap.dedent(block).replace("\\\n", " ").splitlines()
            typed = [line for line in lines if line.startswith("$ ")] or lines
            split = (line.partition(" #")[0].strip().removeprefix("$ ")
                     for line in typed if line and not line.startswith("#"))
            yield [" ".join(line.split()) for line in split]


def inline(text):
    """Return the commands in the text and the tables of a page."""
    found = (" ".join(code.split()) for _, code in CODE.findall(FENCE.sub("", text)))
    return [code for code in found if OURS.match(code)]


def keys(line):
    """Return the keys of a command line: that of a command which ``weft run`` starts is the second one."""
    words = shlex.split(line.replace("...", "").removesuffix("&"))
    while re.match(r"\w+=", words[0]) or words[0] == "sudo":
        del words[0]
    program = words.pop(0).removeprefix(".venv/bin/")
    if program == "export":
        return []
    if program == "weft":
        cut = words.index("--") if "--" in words else len(words)
        return [_weft(words[:cut]), *(keys(shlex.join(words[cut + 1:])) if words[cut + 1:] else [])]
    if program == "make":
        return [f"make {words[0]}{' PREFIX=' * any(word.startswith('PREFIX=') for word in words)}"]
    if program.startswith("python") and words[0] == "-m":
        return [" ".join(["python -m", words[1], *(word for word in words[2:3] if re.fullmatch("[a-z]+", word))])]
    return [program]


def _weft(words):
    key = ["weft"]
    while words and re.match("[a-z]", words[0]) and len(key) < (3 if key[-1] == "link" else 2):
        key.append(words.pop(0))
    for option, value in itertools.zip_longest(words, words[1:], fillvalue=""):
        if option in SELECTING and key[1] != "link":
            key += [option, value] if SELECTING[option] or key[1] == "bench" and option == "--only" else [option]
    return " ".join(key)


def found():
    """Return ``{key: documents}`` of all commands."""
    places = {}
    for document in DOCUMENTS.keys() - {PAST}:
        text = DOCUMENTS[document]
        for line in [*(line for block in blocks(text) for line in block), *inline(text)]:
            for key in keys(line):
                places.setdefault(key, []).append(document)
    return places
