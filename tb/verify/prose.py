"""Prose check: phrases that the project's style excludes, in docstrings, comments, messages, texts and documents.

``python -m weft.tb.verify.prose [PATHS]`` prints each finding with file and line, then the rules, and exits with 1 if
there was a finding. ``make lint`` checks the folders that are clean. Texts are strings of three words or more, without
signs of code: names of checks, figures and cases, and values of TOML and YAML files. Code, quoted text and identifiers
are not checked.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple


class Rule(NamedTuple):
    """Regular expression and its replacement; ``opening``: applies to the first line of a docstring only."""

    pattern: str
    instead: str
    opening: bool = False


RULES = (
    Rule(r"^(What|Which|Who|Whose|Whether|Where|How|That which|Those)\b", "imperative or noun phrase", opening=True),
    Rule(r"^As :", "imperative; see", opening=True),
    Rule(r"(?<=[.;:] )(Whether|Whoever|Whatever|Who|What (?!(is|are|does|do)\b))\b", "noun as subject"),
    Rule(r"^(Who|Whoever|Whatever)\b", "noun as subject"),
    Rule(r"\bwho(ever|soever)\b", "the noun"),
    Rule(r"\bso many\b", "n, as many, the number"),
    Rule(r"\banew\b", "again"),
    Rule(r"\bamid\b", "with, during"),
    Rule(r"\b(tell|tells|told)\b", "report, notify"),
    Rule(r"\b(say|says|said)\b", "report, state, hold"),
    Rule(r"\b(hear|hears|heard)\b", "receive"),
    Rule(r"\bof (its|their|our|his) own\b", "separate, private, or nothing"),
    Rule(r"\b(he|him|his|she|her)\b", "the noun"),
    Rule(r"\b(nobody|somebody|anybody|everybody)\b", "the role: no program, a peer"),
    Rule(r"\b(house|rooms?)\b", "architecture; subsystem, block, space"),
    Rule(r"\b(life|lives)\b", "incarnation, lifetime, is in"),
    Rule(r"\bstrangers?\b", "unknown peer"),
    Rule(r"\b(homeless|hungry)\b", "no free entry, waiting"),
    Rule(r"\bturn(s|ed|ing)? out\b", "evict"),
    Rule(r"\bfates?\b", "outcome"),
    Rule(r"\bunder way\b", "outstanding, in progress"),
    Rule(r"\bbehind\b", "after, because of, downstream of"),
    Rule(r"\b(cards?|model) in time\b", "timing model, timed card"),
    Rule(r"\bclock on the wall\b", "wall-clock time"),
    Rule(r"\b(in )?vain\b", "spurious, without effect"),
    Rule(r"\b(alive|dies|died)\b", "running; a signal ends it"),
    Rule(r"\bthe own\b", "this, the local"),
    Rule(r"\bto and fro\b", "in both directions"),
    Rule(r"\b(for|after|at most|by) so (long|much|far)\b", "the quantity"),
    Rule(r"\b(goes|going|went) on\b", "continue"),
    Rule(r"\b(gives?|gave|given) way\b", "yield"),
    Rule(r"\b(comes?|came) of\b", "result from"),
    Rule(r"\b(is|are|was|were) (not )?to be\b", "must be, will be"),
    Rule(r"\bin (its|their) stead\b|\bin place of\b", "instead of"),
    Rule(r"\bnothing but\b", "only"),
    Rule(r"\bas ever\b", "as before"),
    Rule(r"\b(speaks?|spoken)\b", "support, have"),
    Rule(r"\bno( \w+){1,3} (is|are) there\b", "there is no"),
    Rule(r"\b(is|are) (nothing of|not what)\b", "has no; differs from"),
)
# Quoted text, addresses, and the names that a section of a docstring describes.
QUOTED = re.compile(r"`+[^`\n]*`+|(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"|https?://\S+|\]\([^)\n]*\)|"
                    r"^ *\w+(?:, \w+)* : (?:callable\(.*)?", re.MULTILINE)
# A string that is text: words and punctuation of sentences.
TEXT = re.compile(r"(?=\s*(?:\S+\s+){2}\S)[\w\s.,;:'()%&+/`?!–…±µ-]+")
# Beginning of a comment, by suffix.
C = r"//|/\*|\*(?=\s)"
COMMENT = {"": "#", ".sh": "#", ".toml": "#", ".yml": "#", ".yaml": "#", ".service": "#", ".rules": "#", ".tcl": "#",
           ".Dockerfile": "#", ".c": C, ".h": C, ".cpp": C}
# Message to a person, by suffix: the words of echo, a literal of several words in C and TOML, a value in YAML.
LITERAL, ECHO, VALUE = r'"((?:[^"\\\n]|\\.)*)"', r"\becho\b\s+(.*)", r"^[\s-]*[\w-]+:\s+(.*)"
MESSAGE = {"": ECHO, ".sh": ECHO, ".c": LITERAL, ".h": LITERAL, ".cpp": LITERAL, ".toml": LITERAL, ".yml": VALUE,
           ".yaml": VALUE}
MESSAGES = ("print", "echo", "exit", "error", "add_argument", "Option", "Argument", "Setting", "_flag", "_number",
            "chance", "fail", "refuse")


class Finding(NamedTuple):
    """Place and phrase, with the rule that it breaks."""

    file: Path
    line: int
    phrase: str
    rule: Rule

    def __str__(self):
        return f"{self.file}:{self.line}: '{self.phrase}': {self.rule.instead}"


def check(text, opening=False):
    """Yield ``(offset, phrase, rule)`` for each phrase of ``text`` that breaks a rule."""
    text = QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)
    for rule in RULES:
        if not rule.opening or opening:
            flags = re.MULTILINE if not rule.opening else 0
            for found in re.finditer(rule.pattern, text, flags if rule.pattern[0] == "^" else flags | re.IGNORECASE):
                yield found.start(), found[0], rule


def _name(called):
    return getattr(called, "attr", getattr(called, "id", ""))


def _strings(node):
    return ((part.lineno, part.value, False) for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str))


def _python(source):
    """Yield ``(line, text, opening)`` of the docstrings, comments and messages of a Python file."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node):
                text = node.body[0].value
                yield text.lineno, text.value, True
        elif isinstance(node, ast.Raise) or isinstance(node, ast.Call) and _name(node.func) in MESSAGES:
            yield from _strings(node)
        elif isinstance(node, ast.Assert) and node.msg:
            yield from _strings(node.msg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and TEXT.fullmatch(node.value):
            yield node.lineno, node.value, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), False


def _texts(file):
    """Yield ``(line, text, opening)`` for each text of a file."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield from _python(source)
    elif file.suffix == ".md":
        yield 1, re.sub(r"^```.*?^```|<!--.*?-->", lambda code: re.sub(r"[^\n]", " ", code[0]), source,
                        flags=re.MULTILINE | re.DOTALL), False
    elif file.suffix in COMMENT:
        for number, line in enumerate(source.splitlines(), 1):
            if comment := re.search(rf"(?:^|\s)(?:{COMMENT[file.suffix]})\s*(.*)", line):
                yield number, comment[1], False
            for message in re.findall(MESSAGE.get(file.suffix, "$^"), line):
                if " " in message:
                    yield number, message.strip("'\""), False


def _findings(file):
    return {Finding(file, line + text.count("\n", 0, offset), phrase, rule)
            for line, text, opening in _texts(file) for offset, phrase, rule in check(text, opening)}


def findings(paths):
    """Return the findings in files and below folders, as Git lists them, in the order of the files.

    Raises
    ------
    ValueError
        If a path is outside the checkout.
    """
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *map(str, paths)],
                            capture_output=True, text=True)
    if listed.returncode:
        raise ValueError(f"Git does not list these paths: {listed.stderr.strip()}")
    files = [file for file in map(Path, listed.stdout.splitlines()) if file.suffix in (".py", ".md", *COMMENT)
             and file.is_file()]
    with ProcessPoolExecutor() as pool:
        return sorted(set().union(*pool.map(_findings, files, chunksize=16)))


def main(arguments=None):
    """Print the findings in ``PATHS``; without paths, in all files below the current folder. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m weft.tb.verify.prose", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATHS", help="files and folders that Git lists")
    try:
        found = findings(parser.parse_args(arguments).paths)
    except ValueError as error:
        parser.error(str(error))
    counts = Counter(finding.rule for finding in found)
    for finding in found:
        print(finding)
    if found:
        print("\nfindings  write             instead of")
        for rule in RULES:
            print(f"{counts[rule]:8}  {rule.instead}  <-  {rule.pattern}{' (first line)' if rule.opening else ''}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
