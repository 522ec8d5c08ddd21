"""Linux guest with two cards and unmodified RDMA programs, which `weft serve --backend pci` serves there."""

import json
import shutil
from pathlib import Path

from weft.driver.ibverbs.build import DIRECT, NAME, PRELOAD, build
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.interop.image import LIBRARIES, _libraries, _pack
from weft.tb.verify.interop.packages import unpacked
from weft.tb.verify.linux.image import FOLDER, compile_python, kernel_and_initrd, qemu

HERE = Path(__file__).parent
PROGRAMS = ("ibv_rc_pingpong", "ib_write_bw", "rping")
PACKAGES = ("busybox-static", "ibverbs-utils", "perftest", "rdmacm-utils", "ibverbs-providers", "libibverbs1",
            "librdmacm1", "libibumad3", "libnl-3-200", "libnl-route-3-200", "libpci3", "zlib1g", "libudev1")
MEMORY = "768M"


def overlay(scratch):
    """Return an archive of all that the served programs need beside the driver, made in the folder ``scratch``.

    Raises
    ------
    CannotBuild, NoPackage
    """
    where, root, archive = unpacked(PACKAGES, FOLDER / "programs"), scratch / "overlay", scratch / "overlay.cpio"
    built = build(LIBRARY_FOLDER).parent
    for path in ("bin", "lib64", LIBRARIES, "weft/build/ibverbs", "weft/weft/driver"):
        (root / path).mkdir(parents=True)
    programs = [where / "usr/bin" / name for name in PROGRAMS]
    for program in programs:
        shutil.copy(program, root / "bin")
    for library in _libraries(programs, where):
        if not library.name.startswith(("ld-linux", "libc.so")):        # of the guest's Python
            shutil.copy(library, root / LIBRARIES / library.name)
    for name in (NAME, PRELOAD, DIRECT, "stamp"):
        shutil.copy(built / name, root / "weft/build/ibverbs")
    for name in ("driver/ibverbs", "tb"):
        shutil.copytree(ROOT / name, root / "weft/weft" / name, ignore=shutil.ignore_patterns("__pycache__", "test"))
    shutil.copy(HERE / "serve_program.py", root / "weft")
    compile_python(root / "weft", root)
    shutil.copy(HERE / "serve_init.sh", root / "init")
    (root / "init").chmod(0o755)
    _pack(root, archive, where / "bin/busybox", compressed=False)
    shutil.rmtree(root)
    return archive


def command(sockets, output):
    """Return the command of a guest with the cards of the sockets; its console goes to the file ``output``.

    Raises
    ------
    CannotBuild, NoPackage
    """
    kernel, initrd = kernel_and_initrd(output.parent)
    with initrd.open("ab") as whole:        # the kernel unpacks one archive after the other
        whole.write(overlay(output.parent).read_bytes())
    cards = [json.dumps({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(socket)},
                         "x-msg-timeout": 60000}) for socket in sockets]
    return [
        *qemu(), "-accel", "tcg", "-cpu", "max", "-m", MEMORY, "-machine", "q35,memory-backend=m",
        "-object", f"memory-backend-memfd,id=m,size={MEMORY},share=on", "-device", "intel-iommu,caching-mode=on",
        "-nodefaults", "-nic", "none", "-display", "none", "-no-reboot", "-serial", f"file:{output}",
        "-monitor", "none", "-kernel", str(kernel), "-initrd", str(initrd),
        "-append", "console=ttyS0 quiet mitigations=off panic=-1 intel_iommu=on no_timer_check",
        *(word for card in cards for word in ("-device", card))]
