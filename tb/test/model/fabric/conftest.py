"""Compilation of the engine before the tests of this folder."""

import pytest

from weft.model.fabric import result
from weft.tb.test.model.ready import compile_once


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    compile_once(result)
