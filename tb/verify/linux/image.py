"""Linux guest with a card: QEMU with vfio-user-pci, kernel and initial file system, from Debian's packages."""

import compileall
import hashlib
import lzma
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.interop.image import NoPackage, _apt, _pack, alone, kernel_package, unpacked

FOLDER = BUILD_ROOT / "machine-guest"
HERE = Path(__file__).parent
QEMU = "qemu-system-x86_64"
# Of the release with a QEMU that has the device; its libraries come with it.
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = "".join(f"deb [signed-by={KEYS}] http://deb.debian.org/debian {suite} main\n"
                  for suite in ("trixie", "trixie-backports"))
MODULES = ("irqbypass", "vfio", "vfio_virqfd", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci")
PACKAGES = ("busybox-static", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6",
            "libexpat1", "zlib1g", "libffi8", "libssl3", "libuuid1", "liblzma5", "libbz2-1.0", "libgcc-s1", "pciutils",
            "libpci3", "libkmod2", "libudev1", "libzstd1")
UNUSED = ("usr/share", "usr/lib/x86_64-linux-gnu/gconv", *(f"usr/lib/python3.11/{name}" for name in (
    "test", "lib2to3", "idlelib", "distutils", "ensurepip", "pydoc_data")))
BASE = hashlib.sha256(repr((PACKAGES, MODULES, UNUSED)).encode()).hexdigest()[:8]
XZ = b"\xfd7zXZ\0"
# Modules of the examples' command lines, which the guest does not use.
UNUSED_BY_GUEST = {"weft/typer.py": "def Option(*_, **__): return None\n",
                   "weft/weft/tb/app/stage/stage.py": "Stage = play = None\n"}


def _has_device(command):
    done = subprocess.run([*command, "-device", "vfio-user-pci,help"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)
    return done.returncode == 0 and "x-msg-timeout" in done.stdout


def qemu():
    """Return the command of a QEMU with the device: the system's, or one that is fetched but not installed.

    Raises
    ------
    NoPackage
    """
    if shutil.which(QEMU) and _has_device([QEMU]):
        return [QEMU]
    with alone(FOLDER / "qemu.lock"):
        return _fetched_qemu((FOLDER / "qemu").resolve())


def _fetched_qemu(folder):
    root = folder / "unpacked"
    libraries = [root / path for path in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu",
                                          "usr/lib/x86_64-linux-gnu/pulseaudio")]
    command = ["env", f"QEMU_MODULE_DIR={libraries[0] / 'qemu'}", str(root / "usr/lib64/ld-linux-x86-64.so.2"),
               "--library-path", ":".join(map(str, libraries)), str(root / "usr/bin" / QEMU),
               "-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")]
    if not (folder / "complete").exists():
        _fetch_qemu(folder, root)
        if not _has_device(command):
            raise NoPackage("the QEMU of trixie-backports has no device vfio-user-pci")
        (folder / "complete").touch()
    return command


def _fetch_qemu(folder, root):
    """Fetch QEMU with all its dependencies, as for a system without any package."""
    for path in ("lists/partial", "cache/archives/partial"):
        (folder / path).mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(SOURCES)
    (folder / "status").write_text("")
    options = [f"-o{name}={value}" for name, value in (
        ("Dir::Etc::sourcelist", folder / "sources.list"), ("Dir::Etc::sourceparts", "-"),
        ("Dir::State::lists", folder / "lists"), ("Dir::State::status", folder / "status"),
        ("Dir::Cache", folder / "cache"), ("Debug::NoLocking", "1"), ("APT::Install-Recommends", "0"),
        ("Acquire::Languages", "none"), ("APT::Sandbox::User", "root"))]
    _apt("apt-get", "--quiet", *options, "update")
    _apt("apt-get", "--quiet", "--yes", "--download-only", *options, "--target-release", "trixie-backports", "install",
         "qemu-system-x86", "seabios")
    for archive in sorted((folder / "cache/archives").glob("*.deb")):
        _apt("dpkg", "-x", str(archive), str(root))


def kernel_and_initrd(scratch):
    """Return (uncompressed kernel, initial file system with the driver of this tree, made in the folder ``scratch``).

    Raises
    ------
    NoPackage
    """
    vmlinux, base, where = _kernel_and_base()
    root, initrd = scratch / "root", scratch / "initrd.cpio"
    subprocess.run(["cp", "-a", base, root], check=True)
    for name in ("driver", "model", "hdl/contract"):
        shutil.copytree(ROOT / name, root / "weft/weft" / name,
                        ignore=shutil.ignore_patterns("__pycache__", "ibverbs", "soft", "wan"))
    for name in ("ping_pong", "file_copy"):
        shutil.copy(ROOT / f"examples/{name}.py", root / "weft")
    for name in ("guest_agent", "guest_programs"):
        shutil.copy(HERE / f"{name}.py", root / "weft")
    for path, text in UNUSED_BY_GUEST.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    compile_python(root / "weft", root)
    shutil.copy(HERE / "guest_init.sh", root / "init")
    (root / "init").chmod(0o755)
    _pack(root, initrd, where / "bin/busybox", compressed=False)      # emulated, gzip takes 5 s
    shutil.rmtree(root)
    return vmlinux, initrd


def _kernel_and_base():
    """Return (uncompressed kernel, base of the file system, unpacked packages), which all trees of a folder share."""
    kernel = kernel_package()
    where, folder = unpacked((kernel, *PACKAGES), FOLDER), FOLDER.resolve()
    with alone(FOLDER / "base.lock"):
        return *_made(where, folder, kernel), where


def _made(where, folder, kernel):
    vmlinux, release = folder / f"vmlinux-{kernel}", kernel.removeprefix("linux-image-")
    if not vmlinux.exists():        # an emulated processor takes ten seconds to decompress it
        [packed] = (where / "boot").glob(f"vmlinuz-{release}*")
        data, part = packed.read_bytes(), vmlinux.with_suffix(".part")
        part.write_bytes(lzma.LZMADecompressor().decompress(data[data.index(XZ):]))
        part.rename(vmlinux)
    base = folder / f"base-{BASE}-{kernel}"
    if not base.exists():
        _make_base(where, base.with_suffix(".part"), release)
        base.with_suffix(".part").rename(base)
    return vmlinux, base


def compile_python(folder, root):
    """Compile Python files for the guest, where that is slow, if this Python has the guest's version."""
    if sys.version_info[:2] == (3, 11):
        compileall.compile_dir(folder, quiet=2, stripdir=root, prependdir="/",
                               invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _make_base(where, root, release):
    """Make everything of the file system that does not change with this tree."""
    shutil.rmtree(root, ignore_errors=True)
    archives = FOLDER / "archives"
    for name in PACKAGES:
        [archive] = list(archives.glob(f"{name}_*.deb"))[:1]
        _apt("dpkg", "-x", str(archive.resolve()), str(root))
    for name in UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("bin", "lib", "proc", "sys", "dev", "tmp", "weft/weft"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        [module] = (where / "lib/modules" / release).rglob(f"{name}.ko")
        shutil.copy(module, root / "lib")
    compile_python(root / "usr/lib/python3.11", root)
    if not (root / "bin/sh").exists():
        (root / "bin/sh").symlink_to("busybox")
