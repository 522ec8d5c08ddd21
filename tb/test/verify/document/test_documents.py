"""Tests that documents match the code: generated parts, programs, links, commands and settings."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from weft.hdl.contract import wire
from weft.model.wan import result
from weft.model.wan.experiment import Experiment
from weft.tb.cli import app
from weft.tb.test.cli.make_variables import make_variables
from weft.tb.test.model.ready import compile_once
from weft.tb.test.system import need
from weft.tb.verify.bench.benchmark import BENCHMARKS
from weft.tb.verify.document import goodput, parts, timing_diagram

ROOT = Path(__file__).resolve().parents[4]
DOCUMENTS = [file.relative_to(ROOT).as_posix() for file in parts.documents(ROOT)]
README_LINES = 120
AGAIN = "run: .venv/bin/python -m weft.tb.verify.document"


def text_of(document):
    return (ROOT / document).read_text(encoding="utf-8")


def without_generated_parts(folder):
    """Copy the documents to a folder, with empty generated parts and without pictures."""
    (folder / "docs").mkdir()
    for document in DOCUMENTS:
        (folder / document).write_text(parts.fill(text_of(document), lambda name: ""), encoding="utf-8")
    for data in (goodput.DATA, timing_diagram.DATA):
        shutil.copy(ROOT / data, folder / data)


def test_generated_parts_are_current(tmp_path):
    without_generated_parts(tmp_path)
    (tmp_path / "docs/registers.md").unlink()
    subprocess.run([sys.executable, "-m", "weft.tb.verify.document", "--measured", "--root", tmp_path], check=True)
    written = {document: (tmp_path / document).read_text(encoding="utf-8") for document in DOCUMENTS}
    assert [document for document in DOCUMENTS if written[document] != text_of(document)] == [], AGAIN
    pictures = {goodput.PICTURE, *map(timing_diagram.picture, timing_diagram.waves())}
    assert {f"docs/{file.name}" for file in tmp_path.glob("docs/*.svg")} == pictures
    assert goodput.digest() in (tmp_path / goodput.PICTURE).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_part_ends(document):
    text = text_of(document)
    assert len(re.findall("<!-- made: ", text)) == len(parts.names(text))
    assert len(re.findall("<!-- (?:made|measured): ", text)) == text.count("<!-- end -->")


def test_every_part_and_every_example_is_in_a_document():
    used = {name for document in DOCUMENTS for name in parts.names(text_of(document))}
    programs = {file.name for file in parts.examples(ROOT)}
    assert set(parts.PARTS) <= used
    assert programs and programs <= used
    assert {file.with_suffix(".out").name for file in parts.examples(ROOT)
            if 'print(' in file.read_text(encoding="utf-8")} <= used


def test_every_program_in_a_document_is_an_example_that_runs():
    for document in DOCUMENTS:
        assert "```python" not in parts.fill(text_of(document), lambda name: ""), f"{document}: no example"


def test_failing_example_is_detected(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text("print('half')\nraise ValueError('no')\n")
    with pytest.raises(RuntimeError, match="ValueError: no"):
        parts.run_example(program)


def test_changed_part_is_detected():
    text = "before\n<!-- made: psn -->\nold\n<!-- end -->\nafter\n"
    filled = parts.fill(text, lambda name: f"new {name}")
    assert filled == "before\n<!-- made: psn -->\nnew psn\n<!-- end -->\nafter\n"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_have_targets(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        file = (ROOT / document).parent / file if file else ROOT / document
        assert file.exists(), f"{document} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_exist(document):
    for name in re.findall(r"`((?:hdl|model|driver|tb|docs)/[\w/.]*)`", text_of(document)):
        assert (ROOT / name).exists(), f"{document} names {name}"


def test_contents_of_the_programming_page_list_every_section():
    contents, _, text = text_of("docs/programming.md").partition("\n## A first program\n")
    sections = ["A first program", *re.findall(r"^## (.*)$", text, re.MULTILINE)]
    assert sorted(re.findall(r"\[([^\]]+)\]\(#", contents)) == sorted(sections)


def _commands(kind):
    """Return (document, arguments) of every command in code that starts with ``kind``."""
    for document in DOCUMENTS:
        for inline, block in re.findall(r"`([^`\n]+)`|^```\w*\n(.*?)^```", text_of(document), re.MULTILINE | re.DOTALL):
            for found in re.findall(rf"^(?:\.venv/bin/)?{kind} ([^#\n]*)", inline or block, re.MULTILINE):
                yield document, found.split()


def test_commands_that_are_named_exist():
    targets = set(re.findall(r"^([\w-]+):(?!=)", text_of("Makefile"), re.MULTILINE))
    weft = set(typer.main.get_command(app).commands)
    makes, wefts = list(_commands("make")), list(_commands("weft"))
    assert len(makes) > 5 and len(wefts) > 5
    for document, (target, *_) in makes:
        assert target in targets, f"{document}: make {target}"
    for document, (command, *arguments) in wefts:
        assert command in weft or command.startswith("-"), f"{document}: weft {command}"
        if command == "bench":
            for only, name in zip(arguments, arguments[1:], strict=False):
                assert only != "--only" or name in BENCHMARKS, f"{document}: benchmark {name}"


def test_workflows_and_images_run_targets_that_exist():
    files = [*(ROOT / ".github/workflows").glob("*.yml"), ROOT / "examples/containers/sim.Dockerfile"]
    targets = set(re.findall(r"^([\w-]+):(?!=)", text_of("Makefile"), re.MULTILINE))
    call = re.compile(r'(?:run: |&& |CMD \[")make(?:", "| )([\w-]+)')
    called = {target for file in files for target in call.findall(file.read_text(encoding="utf-8"))}
    assert {"check", "test", "docs", "sim"} <= called <= targets


def test_forms_of_github_are_readable():
    files = [*(ROOT / ".github").rglob("*.yml")]
    assert len(files) >= 4
    for file in files:
        assert yaml.safe_load(file.read_text(encoding="utf-8")), file


def test_variables_of_the_main_job_are_listed():
    section = text_of("docs/running.md").partition("| variable |")[2].partition("<!-- end -->")[0]
    assert sorted(re.findall(r"`([A-Z_]+)`", section)) == sorted(itertools.chain(*make_variables()))


def test_readme_stays_short():
    assert text_of("README.md").count("\n") <= README_LINES


def test_readme_shows_rows_of_the_results():
    def rows(document, name, cells):
        part = text_of(document).partition(f"<!-- measured: {name} -->\n")[2].partition("<!-- end -->")[0]
        split = [[cell.strip("| ") for cell in line.split(" | ")] for line in part.splitlines()[2:]]
        return [tuple(row[cell] for cell in cells) for row in split]

    shown = rows("README.md", "reach", (0, 1, 2))
    assert 5 <= len(shown) <= 10
    assert set(shown) <= set(rows("docs/results.md", "bench", (0, 1, 3)))


def test_picture_of_the_readme_matches_its_points():
    picture = (ROOT / goodput.PICTURE).read_text(encoding="utf-8")
    assert goodput.digest() in picture, AGAIN
    assert len(picture) < 100_000
    for document in ("README.md", "docs/results.md"):
        assert re.search(r"!\[[^\]]+\]\((?:docs/)?goodput\.svg\)", text_of(document))


@pytest.mark.parametrize(("scheme", "loss"), [("adamap", 0.01), ("irn-bdp", 0.01), ("go-back-n", 0.001)])
def test_points_of_the_picture_are_current(scheme, loss):
    compile_once(result)
    now = result.measure(Experiment(scheme=scheme, loss=loss, **goodput.settings())).goodput
    assert goodput.points()[scheme, loss] == float(f"{now:.6g}"), (
        f"run: .venv/bin/weft sweep --plan {goodput.PLAN} --output {goodput.TABLE}, and {AGAIN} --measured")


def test_commands_of_the_tutorial_run(tmp_path):
    """The commands run in order, with results in a folder of the test."""
    need("tshark")
    blocks = re.findall(r"^```sh\n(.*?)^```", text_of("docs/tutorial.md"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    printed = []
    for block in blocks:
        command = block.replace(".venv/bin/python", sys.executable).replace("sim_build", str(tmp_path)).replace(
            ".venv/bin/weft", f"{sys.executable} -m weft.tb.cli")
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120,
                              env=os.environ | {"WEFT_BUILD": str(tmp_path), "PYTHONIOENCODING": "utf-8"})
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed.append([line.split("\t") for line in done.stdout.splitlines()])
    sent, back = printed[2:]
    *originals, (time, opcode, psn) = sent
    assert opcode == str(int(wire.Opcode.RETX_WRITE)) and len(originals) == 13
    assert {row[1] for row in originals} == {"10", "11"}
    [lost] = [row for row in originals if row[2] == psn]
    assert 20e-6 < float(time) - float(lost[0]) < 30e-6
    assert [row[1] for row in back] == ["194", "17"]


def test_explained_report_fields_exist():
    table = text_of("docs/running.md").partition("| field |")[2].partition("\n\n")[0]
    explained = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    report = text_of("tb/app/job/outcome.py")
    assert len(explained) > 20
    for name in explained:
        assert re.search(rf'"{name}"', report), f"no report has the field {name}"
