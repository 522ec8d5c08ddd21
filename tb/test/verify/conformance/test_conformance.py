"""Tests of the harness for rdma-core's tests: it names missing parts, and distinguishes pass, fail and skip."""

import subprocess
import sys

from weft.driver.terms.errors import NotSupported
from weft.tb.verify.conformance import rdmacm

ARGUMENTS = """
class parser:
    parse_args = staticmethod(lambda: None)
"""
TESTS = """
import unittest
import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.mr import MW
from pyverbs.pd import PD
from pyverbs.qp import QPEx, QPInitAttrEx
from pyverbs.pyverbs_error import PyverbsRDMAError


class Some(unittest.TestCase):
    def setUp(self):
        self.ctx = d.Context(name=d.get_device_list()[0].name.decode())

    def test_good(self):
        with PD(self.ctx), CQ(self.ctx, 4) as cq:
            self.assertEqual(cq.cqe, 4)
        self.assertEqual(e.IBV_QPT_RC, 2)

    def test_bad(self):
        self.assertEqual(e.IBV_QPT_RC, 3)

    def test_worse(self):
        PD(self.ctx).nothing()

    def test_refused(self):
        with self.assertRaises(PyverbsRDMAError):
            MW(PD(self.ctx), 1)

    def test_absent(self):
        QPEx(self.ctx, QPInitAttrEx())

    @unittest.skip("no reason")
    def test_skipped(self):
        pass
"""


def run(*words):
    return subprocess.run([sys.executable, "-m", "weft.tb.verify.conformance.run", *map(str, words)],
                          capture_output=True,
                          text=True, check=False)


def test_missing_tests_print_a_sentence(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 1 and "python3-pyverbs" in done.stderr and len(done.stderr.splitlines()) == 1


def test_verdicts_are_distinguished(tmp_path):
    (tmp_path / "args_parser.py").write_text(ARGUMENTS)
    for name in ("test_pd.py", "test_some.py"):
        (tmp_path / name).write_text(TESTS)
    done = run(tmp_path, "--only", "test_some")
    assert done.stdout.splitlines() == [
        "skip  test_some.Some.test_absent: QPEx does not exist here. Errno: 95, Operation not supported",
        "fail  test_some.Some.test_bad: AssertionError: <QPType.RC: 2> != 3",
        "pass  test_some.Some.test_good",
        "pass  test_some.Some.test_refused",
        "skip  test_some.Some.test_skipped: no reason",
        "fail  test_some.Some.test_worse: AttributeError: 'PD' object has no attribute 'nothing'",
        "2 pass, 2 fail, 2 skip"], done.stderr
    assert done.returncode == 1


def test_processes_of_rdma_cm_tests_have_exit_codes():
    def absent():
        try:
            raise NotSupported("UD does not exist here")
        except NotSupported:
            sys.exit(2)

    def wrong():
        try:
            raise ValueError("wrong")
        except ValueError:
            sys.exit(2)

    codes = []
    for target in (lambda: None, absent, wrong, lambda: [][0]):
        process = rdmacm.Process(target, {})
        process.start()
        process.join()
        codes.append(process.exitcode)
    assert codes == [0, rdmacm.SKIPPED, rdmacm.RAISED, rdmacm.RAISED] and not rdmacm.Process.running
