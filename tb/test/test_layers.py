"""Test that imports between folders point in one direction: see :mod:`weft.tb.verify.structure.layers`."""

import pytest

from weft.tb.sim.flow.imports import import_statements
from weft.tb.verify.structure.layers import LAYERS, allowed, edges, folder, imported, levels, modules


@pytest.fixture(scope="module")
def found():
    return edges()


def test_every_folder_is_listed_once():
    listed = [name for line in LAYERS for name in line.split()]
    assert len(listed) == len(set(listed))
    files = modules().values()
    here = {folder(file) for file in files}
    bare = here - {folder(file) for file in files if file.name != "__init__.py"}
    assert here - bare <= set(listed) <= here


def test_every_import_points_upwards_in_the_table(found):
    level = levels()
    for (source, target), files in found.items():
        assert source in level and target in level, (source, target)
        assert allowed(source, target), f"no import {source} -> {target}: {'; '.join(sorted(files))}"


def test_no_module_imports_tests(found):
    assert not [source for source, target in found if target == "tb/test"]


def test_import_is_found_anywhere():
    known = {"weft.tb.sim.stream.stream": None, "weft.driver.verbs.qp": None, "weft.driver.terms.wc": None}
    text = ("def f():\n    from weft.tb.sim.stream import stream\nfrom ..verbs.qp import QP\n"
            "import weft.driver.terms.wc\n")
    assert sorted(imported(import_statements(text), "weft.driver.application", known)) == sorted(known)
