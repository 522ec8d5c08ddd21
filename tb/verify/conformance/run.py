"""Run rdma-core's tests of pyverbs against the driver over a functional card.

Command: ``python -m weft.tb.verify.conformance.run``.

The tests are not part of the project. They are read from the given folder, or from the folder where Debian's package
``python3-pyverbs`` installs them, and run unchanged: only ``import pyverbs`` resolves to the driver.

A test is skipped if it skips itself, or if it creates an object that the driver does not support: other kinds of QP
than RC and UD, XRC, memory windows, device memory, DMA-BUF, paging on demand, parent domains, extended QPs. The other
files of the folder test only such objects: raw Ethernet (``test_flow``, ``test_rss_traffic``), tag matching, extended
QPs (``test_qpex``), and cards of single vendors.
"""

import argparse
import contextlib
import importlib
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

from weft.driver.terms.errors import NotSupported
from weft.driver.verbs.config import ContextConfig
from weft.driver.verbs.device import add_device
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.verify.programs.suite import DEBIAN, unpacked

from . import rdmacm
from .names import install

TESTS = ("test_pd", "test_device", "test_mr", "test_cq", "test_cq_events", "test_qp", "test_addr", "test_atomic",
         "test_cqex", "test_parent_domain", "test_relaxed_ordering", "test_shared_pd", "test_odp",
         "test_fork", "test_rdmacm")
LOOK_NS = 200      # simulated time by which a read of the clock advances


class TickingDevice(FunctionalDevice):
    """Functional card for programs that poll and never wait: each read of the clock advances it."""

    def now_ns(self):
        self.loop.run(self.loop.now_ns + LOOK_NS)
        return super().now_ns()


class _Verdicts(unittest.TestResult):
    """Collector of the outcome of each test."""

    def __init__(self):
        super().__init__()
        self.verdicts = []

    def _note(self, test, verdict, reason=""):
        self.verdicts.append((test.id().removeprefix("tests."), verdict, str(reason).strip().splitlines()[-1:]))

    def addSuccess(self, test):
        self._note(test, "pass")

    def addSkip(self, test, reason):
        self._note(test, "skip", reason)

    def addFailure(self, test, err):
        self._note(test, "fail", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        if isinstance(err[1], NotSupported) and "does not exist here" in str(err[1]):
            self._note(test, "skip", err[1])     # the test does not query support first
        else:
            self._note(test, "fail", self._exc_info_to_string(err, test))


def judge(source, names=TESTS):
    """Run rdma-core's tests; return (test, ``pass``, ``skip`` or ``fail``, list with the last line of the reason)."""
    with tempfile.TemporaryDirectory() as scratch:
        tests = unpacked(scratch, source)
        (tests / "__init__.py").write_text("")
        sys.path[:0] = [scratch, str(tests)]
        device = TickingDevice(EventLoop())
        device.transmit = lambda frame: None
        add_device(device, mac=0x02_0000_0000_01, ip=0x0A00_0001, config=ContextConfig(keep_qp_num=True))
        install(mem_alloc={
            "posix_memalign": lambda size, alignment=8: device.alloc(size, align=max(alignment, 64)).va,
            "free": lambda address: device.free(device.pin(address, 1))})
        parser = importlib.import_module("args_parser").parser      # read by rdma-core's tests
        sys.argv[1:] = []
        parser.parse_args()
        result, loader = _Verdicts(), unittest.TestLoader()
        for name in names:
            with rdmacm.prepared() if name == "test_rdmacm" else contextlib.nullcontext():
                loader.loadTestsFromName(f"tests.{name}").run(result)
    return result.verdicts


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", nargs="?", type=Path, default=DEBIAN, help="rdma-core's folder tests/")
    options.add_argument("--only", nargs="*", default=TESTS, metavar="test_x", help="files of it")
    chosen = options.parse_args()
    if not (chosen.folder / "test_pd.py").exists():
        sys.exit(f"rdma-core's tests are not in {chosen.folder}: install Debian's package python3-pyverbs, or name the "
                 "folder tests/ of rdma-core's source")
    verdicts = judge(chosen.folder, chosen.only)
    for test, verdict, reason in verdicts:
        print(f"{verdict}  {test}" + "".join(f": {line}" for line in reason))
    counts = Counter(verdict for _, verdict, _ in verdicts)
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "skip")))
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
