"""Tests that each command and each code sample of the documents has a test, and that the table of tests is current."""

import ast
import re
import subprocess
from collections import Counter
from functools import cache

import pytest
import typer

from weft.tb.cli import app
from weft.tb.test.cli import test_long_commands
from weft.tb.test.verify.document import commands
from weft.tb.test.verify.document.command_table import BENCHES, LONG, PAGE, SMALL, TABLE, TUTORIAL
from weft.tb.test.verify.document.test_small_commands import FORMS
from weft.tb.verify.bench.benchmark import BENCHMARKS

NAMED = re.compile(r"([\w/]+\.py)::(test_\w+)")
RUNS = re.compile(NAMED.pattern + r"(?:, (tb/\S+))?")
TARGET = re.compile(r"^([a-z][\w-]*):(?!=)", re.MULTILINE)
INTERNAL = {"moved", "style", "tools"}      # targets that others need
# Fenced blocks that are neither commands nor generated, by page and language: the test of their contents, or how many.
WRITTEN = {
    ("docs/congestion.md", "toml"): 2,                                      # of test_small_commands
    ("docs/faults.md", "toml"): "app/serve/test_faults.py::test_the_schedule_of_the_page_runs",
    ("docs/design.md", "mermaid"): 5, ("docs/serve.md", "mermaid"): 1,      # drawings
    ("docs/design.md", ""): 2, ("docs/running.md", ""): 1,                  # formulas, a drawing
}
RUN = {SMALL: FORMS, LONG: [line for _, lines in test_long_commands.FORMS.values() for line in lines]}
MADE = re.compile(r"<!-- (?:made|measured): .*?<!-- end -->", re.DOTALL)


@cache
def functions(file):
    """Return ``{name: source}`` of the tests of a file below ``tb/test``, and the source of the file under ``None``."""
    source = (commands.ROOT / "tb/test" / file).read_text(encoding="utf-8")
    return {None: source} | {node.name: ast.get_source_segment(source, node) for node in ast.parse(source).body
                             if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def existing():
    """Return the keys of all commands of ``weft``, of all benchmarks and of all targets, documented or not."""
    weft = typer.main.get_command(app)
    keys = {f"weft {name}" for name in weft.commands} | {f"weft bench --only {name}" for name in BENCHMARKS}
    keys |= {f"weft link {name}" for name in weft.commands["link"].commands}
    makefile = (commands.ROOT / "Makefile").read_text()
    return keys | {f"make {target}" for target in set(TARGET.findall(makefile)) - INTERNAL}


def test_every_command_has_a_test():
    found = commands.found()
    assert {key: places for key, places in found.items() if key not in TABLE} == {}
    assert existing() <= set(TABLE)
    assert len(found) > 100


def test_no_entry_is_stale():
    recipes = {"weft coverage", "python -m weft.tb.verify.conformance.run", "ruff", "mypy", "mkdocs"}
    assert set(TABLE) - set(commands.found()) - existing() - recipes == set()
    assert set(BENCHES) == set(BENCHMARKS)


def test_every_test_in_the_table_exists():
    places = {block: place for block, place in WRITTEN.items() if isinstance(place, str)}
    for key, place in (TABLE | places).items():
        named = NAMED.findall(place)
        assert named, f"{key}: {place}"
        assert not re.fullmatch(r"\S+", place) or len(named) == 1, f"{key}: {place}"
        for file, name in named:
            assert name in functions(file), f"{key}: {file} has no {name}"


def mentions(key, source):
    """Return whether a source has the words that select the command: subcommand, benchmark, module or target."""
    words = [word for word in key.split()[1:] if word not in ("-m", "--only")] or [key]
    return all(word.removeprefix("weft.").rpartition(".")[2] in source for word in words)


@pytest.mark.parametrize("key", [key for key, place in TABLE.items() if RUNS.fullmatch(place)])
def test_the_named_test_runs_the_command(key):
    file, name, other = RUNS.fullmatch(TABLE[key]).groups()
    if TABLE[key] in RUN:
        assert any(set(key.split()) <= set(one.split()) for line in RUN[TABLE[key]] for one in commands.keys(line))
    elif TABLE[key] in (PAGE, TUTORIAL):
        pages = commands.PAGES if TABLE[key] == PAGE else ("docs/tutorial.md",)
        run = [line for page in pages for block in commands.blocks(commands.DOCUMENTS[page]) for line in block]
        assert key in {one for line in run for one in commands.keys(line)}
    elif not key.startswith("make "):       # the test of targets takes them from the table
        source = functions(file)[None] + ((commands.ROOT / other).read_text() if other else "")
        assert mentions(key, source), f"{file} does not name {key}"


def test_the_help_of_make_lists_every_target():
    done = subprocess.run(["make", "--no-print-directory", "help"], cwd=commands.ROOT, capture_output=True, text=True)
    listed = re.findall(r"^make ([\w-]+)", done.stdout, re.MULTILINE)
    targets = set(TARGET.findall((commands.ROOT / "Makefile").read_text())) - INTERNAL
    assert sorted(listed) == sorted(targets - {"help"}), done.stderr


def test_every_fenced_block_is_generated_or_run_or_named():
    """Tests of generated parts are in ``test_documents``, those of measured parts in ``test_measured``."""
    written = Counter()
    for document, text in commands.DOCUMENTS.items():
        assert text.count("```") == 2 * len(commands.FENCE.findall(text)), f"{document}: a block does not end"
        written.update((document, language) for language, _ in commands.FENCE.findall(MADE.sub("", text))
                       if language not in ("sh", "console"))
    assert written == {block: 1 if isinstance(place, str) else place for block, place in WRITTEN.items()}
