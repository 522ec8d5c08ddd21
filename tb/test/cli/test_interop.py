"""``weft interop`` from the command line."""

import shutil

from typer.testing import CliRunner

from weft.tb.cli import app
from weft.tb.verify.interop import guest


def test_without_qemu_a_sentence_says_what_to_install(monkeypatch):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == guest.QEMU else which(name))
    shown = CliRunner().invoke(app, ["interop"])
    assert shown.exit_code == 1 and "apt-get install qemu-system-x86" in shown.output
