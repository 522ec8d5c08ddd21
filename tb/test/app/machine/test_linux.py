"""A Linux guest of an unmodified QEMU: kernel, configuration space, driver and served programs of functional cards.

The short form of ``make linux``, which the long tier does not repeat: it takes minutes.
"""

import contextlib
import signal

import pytest

from weft.tb.sim.flow.system import tools_expected
from weft.tb.verify.interop.image import NoImage
from weft.tb.verify.interop.packages import NoPackage
from weft.tb.verify.linux.cases import SHORT
from weft.tb.verify.linux.run import run_short

LIMIT_S = 1500      # with the packages, which are fetched once


@contextlib.contextmanager
def limit(seconds):
    """Raise TimeoutError in the main thread after a time. A program that it waits for is ended."""
    def late(*_):
        raise TimeoutError(f"the test has not ended after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_linux_guest_drives_the_card(capsys):
    try:
        with limit(LIMIT_S):
            status = run_short()
    except (NoImage, NoPackage) as problem:
        if tools_expected():
            raise
        pytest.skip(str(problem))
    output = capsys.readouterr().out
    assert status == 0, output
    print(output)
    assert output.count(" passed ") == len(output.splitlines()) == len(SHORT) == 12
