"""Tests of ``.ci/run``: the targets that it starts, and the packages that it and the documents install."""

import re
import tomllib

from weft.tb.test.cli.test_make import ROOT, make
from weft.tb.test.verify.document.commands import DOCUMENTS, blocks

SCRIPT = (ROOT / ".ci/run").read_text()
INSTALLED = set(re.findall(r'^need .* (\S+)$', SCRIPT, re.MULTILINE))
PRESENT = {"libc6-dev", "git", "ca-certificates"}       # wherever there is a compiler and a checkout


def recipe(target):
    """Return the commands of a target that is set up."""
    return "\n".join(make("--assume-old=.venv/.dev", target)[1])


def test_lint_documentation_and_all_tests_run():
    started = re.findall(r"^ *make --no-print-directory ([\w -]+?)(?: &)?$", SCRIPT, re.MULTILINE)
    assert started == ["lint docs", "test-all"]
    assert re.findall(r"\.venv/bin/(ruff check|mypy|python -m [\w.]+|weft verilog)", recipe("lint")) == [
        "ruff check", "mypy", "python -m weft.tb.verify.prose", "weft verilog"]
    assert ".venv/bin/mkdocs build" in recipe("docs")
    assert ".venv/bin/python -m pytest tb/test/driver" in SCRIPT.replace("pytest -q ", "pytest ")


def test_each_tier_has_its_tests():
    chosen = {target: re.findall(r'-m pytest -n \d(?: -m "(.*?)")?', recipe(target))
              for target in ("check", "test", "test-all")}
    assert chosen == {"check": ["not rtl and not programs and not long"], "test": ["not long"], "test-all": [""]}


def test_packages_of_pages_and_images_are_those_of_the_tests():
    lines = [line for page in DOCUMENTS.values() for block in blocks(page) for line in block]
    images = [file.read_text().replace("\\\n", "") for file in (ROOT / "examples/containers").glob("*Dockerfile")]
    installs = [found for text in (*lines, *images) for found in re.findall(r"apt-get install ([^&\n]*)", text)]
    packages = {word for words in installs for word in words.split() if not word.startswith("-")}
    assert len(installs) >= 4 and packages <= INSTALLED | PRESENT, packages - INSTALLED


def test_a_page_installs_the_package_as_make_does():
    [line] = [line for block in blocks(DOCUMENTS["docs/wan.md"]) for line in block if "pip install" in line]
    extra = re.search(r"'\.\[(\w+)\]'", line)[1]
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text()
    [of_make] = [found for found in re.findall(r"\$\(BIN\)/python -m (pip install .*)", makefile) if "sim" in found]
    assert of_make.replace(" --quiet --disable-pip-version-check", "").replace("sim", extra) == line.removeprefix(
        ".venv/bin/")
