"""Tests of the comparison with ns-3: it forwards its arguments, or reports missing programs."""

import pytest

from weft.tb.verify.bench import ns3
from weft.tb.verify.bench.wide_area import BASE


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(ns3, "HEADER", tmp_path / "none.h")
    with pytest.raises(AssertionError, match="apt-get install libns3-dev"):
        ns3.program()


def test_compile_error_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(ns3, "HEADER", tmp_path)
    monkeypatch.setattr(ns3, "FOLDER", tmp_path)
    (tmp_path / "wrong.cpp").write_text("int main(")
    with pytest.raises(AssertionError, match="does not compile"):
        ns3.program("wrong", tmp_path)


def test_output_of_ns3_is_parsed(tmp_path):
    fake = tmp_path / "fake"
    fake.write_text('#!/bin/sh\n[ "$*" = "1000 1084 100000000000 15000000 0.01 bare" ] && echo 0.5 990\n')
    fake.chmod(0o755)
    assert ns3.forward(fake, "bare", 1000, BASE.with_(loss=0.01)) == (0.5, 990)
