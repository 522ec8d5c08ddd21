"""Tests of :mod:`weft.tb.verify.structure.measure`: annotated functions."""

import pytest

from weft.tb.verify.structure.layers import ROOT
from weft.tb.verify.structure.measure import checked_files, functions

SHARE_MIN = 0.95
SOURCE = """
class A:
    def __init__(self): ...
    def nothing(self) -> None: ...
    def some(self, a: int, *b) -> None: ...
    async def all(self, a: int, *b: int, c: int = 0, **d: int) -> int:
        def inner(e: int): ...
"""


def test_functions_of_the_checked_packages_are_annotated():
    found = functions(ROOT, checked_files(ROOT))
    missing = [function.where for function in found if not function.annotated]
    assert len(found) > 500
    assert 1 - len(missing) / len(found) >= SHARE_MIN, missing


def test_an_annotated_function_has_types_of_all_arguments_and_of_its_result(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    found = functions(tmp_path, [tmp_path / "a.py"])
    assert {function.where.split()[-1] for function in found} == {"__init__", "nothing", "some", "all", "inner"}
    assert {function.where.split()[-1] for function in found if function.annotated} == {"nothing", "all"}


@pytest.mark.parametrize(("settings", "names"), [
    ('packages = ["weft.driver.aio"]\nmodules = ["weft.model.link"]', ["driver/aio/context.py", "model/link.py"]),
    ("strict_equality = true", [])])
def test_checked_files_are_those_of_the_settings(tmp_path, settings, names):
    for name in ("driver/aio/context.py", "driver/cm/cmid.py", "model/link.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "pyproject.toml").write_text(f"[tool.mypy]\n{settings}\n")
    assert [file.relative_to(tmp_path).as_posix() for file in checked_files(tmp_path)] == names
