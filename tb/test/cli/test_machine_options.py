"""Arguments that ``weft machine`` rejects, and the output of ``weft devices``."""

import socket

import pytest
from typer.testing import CliRunner

from weft.driver.pci import survey
from weft.tb.cli import app
from weft.tb.test.cli.test_serve_options import end_of
from weft.tb.test.driver.pci.fake_sysfs import FakeTree


@pytest.mark.parametrize(("arguments", "words"), [
    (["--backend", "rtl", "--hosts", "a,b,c"], ["--hosts", "2 cards"]), (["--hosts", "a,a"], ["--hosts"]),
    (["--backend", "pci"], ["--backend", "functional, model, rtl"]),
    (["--loss", "2"], ["--loss", "0 to 1"]), (["--preset", "huge"], ["--preset", "test, basic, full"]),
    (["--folder", "x" * 110], ["--folder", "too long"])])
def test_bad_options_print_a_sentence_and_exit_with_2(arguments, words):
    status, sentence = end_of("machine", *arguments)
    assert status == 2 and all(word in sentence for word in words)


def test_sockets_of_a_running_machine_are_kept(tmp_path):
    path = tmp_path / "b.sock"
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(path))
        there.listen(1)
        for _ in range(4):      # it accepts none of them while its machine is connected
            status, sentence = end_of("machine", "--folder", str(tmp_path))
            assert status == 2 and f"{path} is another daemon's" in sentence and path.exists()


def test_cards_of_this_machine(tmp_path, monkeypatch):
    tree = FakeTree(tmp_path)
    monkeypatch.setattr(survey.survey, "__defaults__", (tree.sys, tree.dev))
    result = CliRunner().invoke(app, ["devices"])
    assert (result.exit_code, result.stdout) == (0, survey.NO_CARD + "\n")
    tree.function("0000:03:00.0", group=3)
    tree.function("0000:04:00.0", group=4, driver="vfio-pci")
    lines = CliRunner().invoke(app, ["devices"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["0000:03:00.0", "0000:04:00.0"]
    assert "not bound to vfio-pci" in lines[0] and "modprobe vfio" in lines[1]
