"""rdma-core's tests, as Debian ships them, with Debian's pyverbs and this project's library."""

import gzip
import re
import shutil
import tempfile
from ipaddress import IPv4Address
from pathlib import Path

from weft.tb.app.serve.functional import IP, MAC
from weft.tb.verify.programs.session import Ended

DEBIAN = Path("/usr/share/doc/rdma-core/tests")
TESTS = ("pd", "device", "mr", "cq", "cqex", "cq_events", "addr", "qp", "qpex", "atomic", "rdmacm")
PYTHON = "/usr/bin/python3"
PACKAGES = ("rdma-core", "python3-pyverbs")
# The tests read the address of a device's network interface from /sys and `ip`; the card has an address but no network
# interface.
START = """
import runpy, sys, tests.base
tests.base.RDMATestCase._get_ip_mac = lambda self, *device: self.args.append([*device, {ip!r}, {mac!r}])
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def unpacked(folder, source=DEBIAN):
    """Copy the tests to ``tests`` below ``folder``, and decompress those that are compressed; return their folder."""
    tests = Path(folder, "tests")
    tests.mkdir()
    for path in source.glob("*.py*"):
        if path.suffix == ".gz":
            (tests / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copy(path, tests)
    return tests


def there():
    """Return whether the tests and pyverbs are installed."""
    return DEBIAN.exists() and any(Path("/usr/lib/python3/dist-packages").glob("pyverbs"))


def run(session, name, limit_s=600):
    """Run one file of tests on host a, peers included; return its :class:`Ended`."""
    with tempfile.TemporaryDirectory(prefix="weft-suite-") as folder:
        tests = unpacked(folder)
        start = tests / "start.py"
        start.write_text(START.format(ip=str(IPv4Address(IP)), mac=MAC.to_bytes(6, "big").hex(":")))
        return session.run("a", PYTHON, str(start), str(tests / "run_tests.py"), "-v", f"tests.test_{name}",
                           limit_s=limit_s, PYTHONPATH=f"{folder}:{tests}")


def skips(ended: Ended):
    """Return ``{test: reason}`` of the skipped tests, from the output of unittest with ``-v``."""
    found, name = {}, None
    for line in ended.output.splitlines():
        if named := re.match(r"(test\w*) \(", line):
            name = named[1]
        if reason := re.search(r"\.\.\. skipped (['\"])(.*)\1$", line):
            found[name] = reason[2]
    return found


def counts(ended: Ended):
    """Return (run, skipped) from the output of unittest, or None."""
    ran = re.search(r"^Ran (\d+) tests?", ended.output, re.MULTILINE)
    skipped = re.search(r"skipped=(\d+)", ended.output)
    return (int(ran[1]), int(skipped[1]) if skipped else 0) if ran else None
