"""rdma-core's own tests, as Debian ships them, through Debian's pyverbs and the library here."""

import gzip
import re
import shutil
import tempfile
from ipaddress import IPv4Address
from pathlib import Path

from weft.tb.app.serve.functional import IP, MAC
from weft.tb.verify.programs.session import Ended

TESTS = ("pd", "device", "mr", "cq", "cqex", "cq_events", "addr", "qp", "qpex", "atomic", "rdmacm")
DEBIAN, PYTHON = Path("/usr/share/doc/rdma-core/tests"), "/usr/bin/python3"
PACKAGES = ("rdma-core", "python3-pyverbs")
# The tests ask /sys and `ip` for the address of a device's network interface; the card has an address, and neither.
# They have a list of devices without datagrams over RoCEv2, to leave those out; this one is not on it.
START = """
import runpy, sys, tests.base
tests.base.RDMATestCase._get_ip_mac = lambda self, *device: self.args.append([*device, {ip!r}, {mac!r}])
tests.base.RDMATestCase.is_eth_and_has_roce_hw_bug = lambda self: True
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def there():
    """Tests and pyverbs are installed."""
    return DEBIAN.exists() and any(Path("/usr/lib/python3/dist-packages").glob("pyverbs"))


def run(session, name, limit_s=600):
    """:class:`Ended` of one file of tests on host a, whose peers are on host a as well."""
    with tempfile.TemporaryDirectory(prefix="weft-suite-") as folder:
        tests = Path(folder, "tests")
        tests.mkdir()
        for file in DEBIAN.iterdir():
            if file.suffix == ".gz":
                (tests / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
            else:
                shutil.copy(file, tests)
        start = tests / "start.py"
        start.write_text(START.format(ip=str(IPv4Address(IP)), mac=MAC.to_bytes(6, "big").hex(":")))
        return session.run("a", PYTHON, str(start), str(tests / "run_tests.py"), "-v", f"tests.test_{name}",
                           limit_s=limit_s, PYTHONPATH=f"{folder}:{tests}")


def skips(ended: Ended):
    """Why tests were not run, by name, as unittest says with ``-v``."""
    found, name = {}, None
    for line in ended.output.splitlines():
        if named := re.match(r"(test\w*) \(", line):
            name = named[1]
        if reason := re.search(r"\.\.\. skipped (['\"])(.*)\1$", line):
            found[name] = reason[2]
    return found


def counts(ended: Ended):
    """(run, skipped) as unittest says, or None."""
    ran = re.search(r"^Ran (\d+) tests?", ended.output, re.MULTILINE)
    skipped = re.search(r"skipped=(\d+)", ended.output)
    return (int(ran[1]), int(skipped[1]) if skipped else 0) if ran else None
