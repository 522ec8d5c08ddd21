"""Kernel and initial file system of the guest: BusyBox, rxe, perftest, the conformance suite, and a peer program.

The peer program executes orders. Debian packages are fetched and unpacked but not installed.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.tools import need
from weft.tb.verify.conformance import c_suite

APT_LIMIT_S = 600       # a registry that does not answer fails a command, and nothing waits for it longer
KERNEL = "linux-image-amd64"        # depends on the package of the current kernel
# Programs of the guest, and the libraries that its programs are built with.
PACKAGES = (
    "busybox-static", "iproute2", "ibverbs-providers", "libibverbs1", "libibverbs-dev", "librdmacm1", "perftest",
    "libibumad3", "libmnl0", "libbpf1", "libelf1", "libcap2", "libnl-3-200", "libnl-route-3-200", "libpci3", "libbsd0",
    "libmd0", "zlib1g", "libudev1")
FOLDER = BUILD_ROOT / "interop"
HERE = Path(__file__).parent
INIT = HERE / "init.sh"
MODULES = ("crc32_generic", "udp_tunnel", "ip6_udp_tunnel", "ib_core", "ib_uverbs", "rdma_rxe", "e1000")
TESTS = ("ib_write_bw", "ib_send_bw", "ib_read_bw", "ib_atomic_bw")
PROVIDER = "librxe-rdmav34.so"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


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


class NoImage(Failure):
    """The guest's image cannot be made. The message contains the reason."""


def _libraries(programs, where):
    """Return the paths of the shared libraries that programs need; the packages are searched first."""
    search = ":".join(str((where / path).resolve()) for path in (LIBRARIES, "lib/x86_64-linux-gnu"))
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True,
                            env={**os.environ, "LD_LIBRARY_PATH": search}).stdout
    if missing := sorted(set(re.findall(r"(\S+) => not found", listed))):
        raise NoImage(f"the guest's programs need {', '.join(missing)}, which no package here has")
    return sorted({Path(path) for path in re.findall(r"(?:=> |^\s*)(/.+) \(0x", listed, re.MULTILINE)})


def _compile(where, program, sources):
    need("gcc", "gcc")
    command = ["gcc", "-O1", "-Wall", f"-I{where / 'usr/include'}", "-o", str(program), *map(str, sources),
               f"-L{where / LIBRARIES}", "-l:libibverbs.so.1", f"-Wl,-rpath-link,{where / LIBRARIES}",
               "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoImage(f"the guest's {program.name} does not compile: {done.stderr.strip().splitlines()[-1]}")


def image(folder=FOLDER):
    """Return (kernel, initial file system), made if they do not exist. Raises MissingTool, NoPackage or NoImage."""
    kernel = kernel_package()
    suite = sorted(c_suite.FOLDER.glob("*.[ch]"))
    sources = b"".join(path.read_bytes() for path in (HERE / "peer.c", INIT, Path(__file__), *suite))
    name = hashlib.sha256(kernel.encode() + sources).hexdigest()[:12]
    initrd, vmlinuz = folder / f"{name}.cpio.gz", folder / f"{name}.vmlinuz"
    if initrd.exists() and vmlinuz.exists():
        return vmlinuz, initrd
    where = unpacked((kernel, *PACKAGES), folder)
    root = folder / f"root-{name}-{os.getpid()}"
    for path in ("bin", "lib", "lib64", "proc", "sys", "dev", "tmp", "etc/libibverbs.d", f"{LIBRARIES}/libibverbs"):
        (root / path).mkdir(parents=True)
    _fill(where, root, kernel)
    _pack(root, initrd, where / "bin/busybox")
    shutil.copy(next((where / "boot").glob(f"vmlinuz-{kernel.removeprefix('linux-image-')}*")), vmlinuz)
    shutil.rmtree(root)
    return vmlinuz, initrd


def _fill(where, root, kernel):
    peer, suite = root / "bin/peer", root / "bin" / c_suite.NAME
    provider = where / LIBRARIES / "libibverbs" / PROVIDER
    _compile(where, peer, [HERE / "peer.c"])
    _compile(where, suite, c_suite.sources())
    for source, name in ((where / "bin/busybox", "busybox"), (where / "usr/bin/rdma", "rdma"),
                         *((where / "usr/bin" / test, test) for test in TESTS)):
        shutil.copy(source, root / "bin" / name)
    for applet in ("sh", "timeout"):
        (root / "bin" / applet).symlink_to("busybox")
    for module in MODULES:
        [found] = (where / "lib/modules" / kernel.removeprefix("linux-image-")).rglob(f"{module}.ko")
        shutil.copy(found, root / "lib")
    shutil.copy(provider, root / LIBRARIES / "libibverbs")
    (root / "etc/libibverbs.d/rxe.driver").write_text("driver rxe\n")
    programs = [peer, suite, provider, root / "bin/rdma", *(root / "bin" / test for test in TESTS)]
    for library in _libraries(programs, where):
        to = root / ("lib64" if library.name.startswith("ld-linux") else LIBRARIES) / library.name
        shutil.copy(library, to)
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)


def _pack(root, initrd, busybox, *, compressed=True):
    """Pack the folder as an archive in the format that the kernel reads."""
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*"))) + "\n"
    archive = subprocess.run([busybox.resolve(), "cpio", "-o", "-H", "newc"], cwd=root, input=names.encode(),
                             capture_output=True, check=True).stdout
    part = initrd.with_suffix(f".{os.getpid()}")
    if compressed:
        archive = subprocess.run(["gzip", "-1"], input=archive, capture_output=True, check=True).stdout
    part.write_bytes(archive)
    part.rename(initrd)
