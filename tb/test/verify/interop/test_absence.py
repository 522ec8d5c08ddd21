"""Tests without QEMU, without packages, without a compiler: one sentence each."""

import shutil

import pytest

from weft.tb.sim.flow.tools import MissingTool
from weft.tb.verify.interop import guest, image


def without(monkeypatch, program):
    """Hide a program from ``shutil.which``."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == program else which(name))


def test_missing_qemu_is_named(monkeypatch):
    without(monkeypatch, guest.QEMU)
    with pytest.raises(MissingTool, match=r"is not installed; on Debian: apt-get install qemu-system-x86$"):
        guest.start()


def test_missing_apt_or_package_is_named(monkeypatch, tmp_path):
    with pytest.raises(image.NoPackage, match="apt-get download --quiet no-such-package failed"):
        image.unpacked(["no-such-package"], tmp_path)
    without(monkeypatch, "apt-cache")
    with pytest.raises(image.NoPackage, match="there is no apt-cache here"):
        image.kernel_package()


def test_registry_that_does_not_answer_is_named(monkeypatch, tmp_path):
    program = tmp_path / "apt-get"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(image, "APT_LIMIT_S", 0.1)
    with pytest.raises(image.NoPackage, match="^apt-get download --quiet package has not ended after 0.1 s; is the"):
        image.unpacked(["package"], tmp_path)


def test_missing_compiler_names_the_package(monkeypatch, tmp_path):
    without(monkeypatch, "gcc")
    with pytest.raises(MissingTool, match="apt-get install gcc"):
        image._compile(tmp_path, tmp_path / "peer", [])


def test_library_without_a_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(image.subprocess, "run", lambda *_, **__: type("Done", (), {
        "stdout": "\tlibodd.so.3 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n"})())
    with pytest.raises(image.NoImage, match=r"need libodd\.so\.3, which"):
        image._libraries([tmp_path], tmp_path)
