"""Tests of the public names of :mod:`weft.driver`."""

import ast
import importlib
import subprocess
import sys

import pytest

from weft import driver
from weft.tb.sim.flow.sources import ROOT


def test_names_are_those_of_their_modules():
    assert list(driver.__all__) == sorted(set(driver.__all__))
    for name in driver.__all__:
        value = getattr(driver, name)
        assert value is getattr(importlib.import_module(value.__module__), name)
        assert value.__doc__


def test_import_of_the_package_loads_none_of_its_modules():
    code = "import sys, weft.driver\nprint([name for name in sys.modules if name.startswith('weft.driver.')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_an_import_of_all_gets_the_names():
    names = {}
    exec("from weft.driver import *", names)
    assert set(driver.__all__) == names.keys() - {"__builtins__"}


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'weft.driver' has no attribute 'Device'"):
        driver.Device


def test_programs_of_the_documents_import_public_names_from_the_package():
    files = [*(ROOT / "docs/examples").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("weft.driver."):
                assert not {alias.name for alias in node.names} & set(driver.__all__), f"{file}:{node.lineno}"
