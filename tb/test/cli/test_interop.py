"""``weft interop`` from the command line."""

import contextlib
import re
import shutil

from typer.testing import CliRunner

from weft.tb.cli import app
from weft.tb.verify.interop import cases, guest


def test_the_output_explains_the_retransmissions(monkeypatch):
    monkeypatch.setattr(guest, "booted", lambda: contextlib.nullcontext())
    monkeypatch.setattr(cases, "cases", lambda short: {"a case": lambda guest: "7 sent again"})
    shown = CliRunner().invoke(app, ["interop", "--short"])
    assert shown.exit_code == 0
    assert re.fullmatch(r"a case: 7 sent again, \d\.\d s\nrxe is a standard receiver \(go-back-N\): .*\n", shown.output)


def test_missing_qemu_names_the_package(monkeypatch):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == guest.QEMU else which(name))
    shown = CliRunner().invoke(app, ["interop"])
    assert shown.exit_code == 1 and "apt-get install qemu-system-x86" in shown.output
