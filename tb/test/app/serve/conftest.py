"""What the tests of the library and of programs need."""

import contextlib

import pytest

from weft.driver.ibverbs.build import build, missing
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.system import tools_expected
from weft.tb.verify.programs.namespaces import Forbidden, NoNamespaces


@pytest.fixture(scope="session")
def library():
    """Path of the library; a test is skipped if it cannot be built here, and fails under ``CI=true``."""
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)
    return build(LIBRARY_FOLDER)


@pytest.fixture
def needs_namespaces():
    """A block that makes network namespaces: its test is skipped where that is forbidden, or what it takes is missing.
    The latter is a failure under ``CI=true``."""
    @contextlib.contextmanager
    def needed():
        try:
            yield
        except NoNamespaces as problem:
            if tools_expected() and not isinstance(problem, Forbidden):
                raise
            pytest.skip(str(problem))
    return needed
