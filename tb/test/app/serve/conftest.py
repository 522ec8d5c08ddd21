"""Fixtures of the tests of the library and of programs."""

import contextlib

import pytest

from weft.driver.ibverbs.build import build, missing
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.verify.programs.namespaces import Forbidden, NoNamespaces


@pytest.fixture(scope="session")
def library():
    """Return the path of the library; without compiler or header, skip the test, or fail under ``CI=true``."""
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)
    return build(LIBRARY_FOLDER)


@pytest.fixture
def needs_namespaces():
    """Return a context for code that makes network namespaces.

    The test is skipped if they are forbidden, or if programs are missing. The latter is a failure under ``CI=true``.
    """
    @contextlib.contextmanager
    def needed():
        try:
            yield
        except NoNamespaces as problem:
            if tools_expected() and not isinstance(problem, Forbidden):
                raise
            pytest.skip(str(problem))
    return needed
