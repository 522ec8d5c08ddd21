"""Tests without QEMU, without packages, without a compiler: one sentence each."""

import shutil

import pytest

from weft.tb.verify.interop import guest, image, packages


def without(monkeypatch, program):
    """Hide a program from ``shutil.which``."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == program else which(name))


def test_without_qemu_the_sentence_says_what_to_install(monkeypatch):
    without(monkeypatch, guest.QEMU)
    with pytest.raises(guest.NoQemu, match=r"is not installed; on Debian: apt-get install qemu-system-x86$"):
        guest.start()


def test_without_apt_or_a_package_the_sentence_names_it(monkeypatch, tmp_path):
    with pytest.raises(packages.NoPackage, match="apt-get download --quiet no-such-package failed"):
        packages.unpacked(["no-such-package"], tmp_path)
    without(monkeypatch, "apt-cache")
    with pytest.raises(packages.NoPackage, match="there is no apt-cache here"):
        packages.kernel_package()


def test_without_a_compiler_the_sentence_says_what_to_install(monkeypatch, tmp_path):
    without(monkeypatch, "gcc")
    with pytest.raises(image.NoImage, match="apt-get install gcc"):
        image._compile(tmp_path, tmp_path / "peer")


def test_a_library_that_no_package_has_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(image.subprocess, "run", lambda *_, **__: type("Done", (), {
        "stdout": "\tlibodd.so.3 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n"})())
    with pytest.raises(image.NoImage, match=r"need libodd\.so\.3, which"):
        image._libraries([tmp_path], tmp_path)
