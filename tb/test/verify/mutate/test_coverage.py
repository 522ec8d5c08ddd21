"""Tests of coverage: lines that a bench leaves out are reported."""

from weft.tb.verify.mutate import coverage

DAT = """# SystemC::Coverage-3
C '\x01f\x02top.v\x01l\x023\x01n\x025\x01t\x02branch\x01page\x02v_branch/top\x01o\x02if\x01h\x02top' 7
C '\x01f\x02top.v\x01l\x024\x01n\x025\x01t\x02line\x01page\x02v_line/top\x01o\x02elsif\x01h\x02top' 0
C '\x01f\x02top.v\x01l\x021\x01n\x029\x01t\x02toggle\x01page\x02v_toggle/top\x01o\x02a[0]:0->1\x01h\x02top' 2
C '\x01f\x02top.v\x01l\x021\x01n\x029\x01t\x02toggle\x01page\x02v_toggle/top\x01o\x02a[0]:1->0\x01h\x02top' 0
C '\x01f\x02top.v\x01l\x021\x01n\x029\x01t\x02user\x01page\x02v_user/top\x01o\x02u\x01h\x02top' 5
"""


def left_by(folder, module, dat):
    """Create a run folder like a simulation's."""
    folder.mkdir(parents=True)
    (folder / "rerun.sh").write_text(f"#!/bin/sh\nexport COCOTB_TEST_MODULES=weft.tb.{module}\nexec simulator\n")
    (folder / coverage.COUNTS).write_text(dat)


def test_counts_of_all_runs_of_a_design_are_added(tmp_path):
    left_by(tmp_path / "design-1/run-a", "test.hdl.ring.test_reader", DAT)
    left_by(tmp_path / "design-1/run-b", "test.hdl.ring.test_reader", DAT.replace("' 0", "' 3", 1))
    left_by(tmp_path / "design-2/run-a", "test.hdl.test_csr", DAT)
    subsystems = coverage.by_subsystem(coverage.collect(tmp_path))
    assert subsystems == {"csr": {"line": [1, 2], "toggle": [1, 2]}, "ring": {"line": [2, 2], "toggle": [1, 2]}}


def test_unreached_count_precedes_its_line():
    text = coverage.annotated("wire a;\nalways\nif\nelse\n", coverage.points(DAT))
    assert [line.split()[0] for line in text.splitlines()] == ["0", "always", "7", "0"]
