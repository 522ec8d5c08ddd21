"""Debian packages, fetched and unpacked but not installed."""

import contextlib
import fcntl
import re
import shutil
import subprocess
from pathlib import Path

from weft.tb.sim.flow.failure import Failure

APT_LIMIT_S = 600       # a registry that does not answer fails a command, and nothing waits for it longer
KERNEL = "linux-image-amd64"        # depends on the package of the current kernel
# Programs of the guest, and the libraries that its programs are built with.
PACKAGES = (
    "busybox-static", "iproute2", "ibverbs-providers", "libibverbs1", "libibverbs-dev", "librdmacm1", "perftest",
    "libibumad3", "libmnl0", "libbpf1", "libelf1", "libcap2", "libnl-3-200", "libnl-route-3-200", "libpci3", "libbsd0",
    "libmd0", "zlib1g", "libudev1")


class NoPackage(Failure):
    """A Debian package is not available. The message contains its name and the reason."""


def _apt(*command, cwd=None):
    if shutil.which(command[0]) is None:
        raise NoPackage(f"the guest is made from Debian packages, and there is no {command[0]} here")
    shown = " ".join(word for word in command if not word.startswith("-o"))
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=APT_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NoPackage(f"{shown} has not ended after {APT_LIMIT_S} s; is the network away?") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoPackage(f"{shown} failed ({reason}); is apt-get update due, or the network away?")
    return done.stdout


def kernel_package():
    """Return the name of the package with the current kernel."""
    found = re.search(r"Depends: (linux-image-\S+)", _apt("apt-cache", "depends", KERNEL))
    if found is None:
        raise NoPackage(f"{KERNEL} names no kernel; apt-get update is due")
    return found[1]


def unpacked(names, folder):
    """Fetch packages and unpack them into ``folder``, all into one tree; unpacked packages are kept."""
    with alone(folder / "packages.lock"):
        return _unpacked(names, folder)


@contextlib.contextmanager
def alone(path):
    """Hold the lock of a file in the block, so that one process at a time makes something."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpacked(names, folder):
    archives, root = folder / "archives", folder / "unpacked"
    for path in (archives, root):
        path.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in names if not (root / f".{name}").exists()]
    if missing := [name for name in wanted if not list(archives.glob(f"{name}_*.deb"))]:
        _apt("apt-get", "download", "--quiet", *missing, cwd=archives)      # each call reads all package lists
    for name in wanted:
        [archive] = list(archives.glob(f"{name}_*.deb"))[:1]
        _apt("dpkg", "-x", str(archive.resolve()), str(root.resolve()))
        (root / f".{name}").touch()
    return Path(root)
