"""What the tests of the library and of programs need."""

import pytest

from weft.driver.ibverbs.build import build, missing
from weft.tb.flow.system import tools_expected
from weft.tb.serve.environment import LIBRARY_FOLDER


@pytest.fixture(scope="session")
def library():
    """Path of the library; a test is skipped if it cannot be built here, and fails under ``CI=true``."""
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)
    return build(LIBRARY_FOLDER)
