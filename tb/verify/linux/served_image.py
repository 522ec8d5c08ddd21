"""Part of a Linux guest's file system for served cards: daemon, device tools, and unmodified RDMA programs."""

import shutil

from weft.driver.ibverbs.build import DIRECT, NAME, PRELOAD, CannotBuild, build
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.interop.image import LIBRARIES, NoImage, _libraries, _pack
from weft.tb.verify.interop.packages import unpacked
from weft.tb.verify.linux.image import FOLDER, HERE, compile_python

PROGRAMS = ("ibv_rc_pingpong", "ib_write_bw", "rping")
PACKAGES = ("busybox-static", "ibverbs-utils", "perftest", "rdmacm-utils", "ibverbs-providers", "libibverbs1",
            "librdmacm1", "libibumad3", "libnl-3-200", "libnl-route-3-200", "libpci3", "zlib1g", "libudev1")


def add_served(initrd):
    """Add to the file system ``initrd`` what served cards need beside the driver.

    Raises
    ------
    NoImage, NoPackage
    """
    where, root = unpacked(PACKAGES, FOLDER / "programs"), initrd.with_name("served")
    archive = initrd.with_name("served.cpio")
    try:
        built = build(LIBRARY_FOLDER).parent
    except CannotBuild as problem:
        raise NoImage(str(problem)) from None
    for path in ("bin", LIBRARIES, "weft/build/ibverbs", "weft/weft/driver"):
        (root / path).mkdir(parents=True)
    programs = [where / "usr/bin" / name for name in PROGRAMS]
    for program in programs:
        shutil.copy(program, root / "bin")
    for library in _libraries(programs, where):
        if not library.name.startswith(("ld-linux", "libc.so")):        # of the guest's Python
            shutil.copy(library, root / LIBRARIES / library.name)
    for name in (NAME, PRELOAD, DIRECT, "stamp"):
        shutil.copy(built / name, root / "weft/build/ibverbs")
    for name in ("driver/ibverbs", "tb/app", "tb/sim"):
        shutil.copytree(ROOT / name, root / "weft/weft" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tb/__init__.py", root / "weft/weft/tb")
    shutil.copy(HERE / "guest_served.py", root / "weft")
    compile_python(root / "weft", root)
    _pack(root, archive, where / "bin/busybox", compressed=False)
    shutil.rmtree(root)
    with initrd.open("ab") as whole:        # the kernel unpacks one archive after the other
        whole.write(archive.read_bytes())
    archive.unlink()
