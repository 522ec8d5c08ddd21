"""rdma-core's own tests, as Debian ships them, through Debian's pyverbs and the library here."""

import gzip
import re
import shutil
import tempfile
from pathlib import Path

from weft.tb.serve.session import Ended

TESTS = ("pd", "device", "mr", "cq", "cqex", "cq_events", "addr", "qp", "qpex", "atomic")
DEBIAN, PYTHON = Path("/usr/share/doc/rdma-core/tests"), "/usr/bin/python3"
PACKAGES = ("rdma-core", "python3-pyverbs")


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
        return session.run("a", PYTHON, str(tests / "run_tests.py"), "-v", f"tests.test_{name}", limit_s=limit_s,
                           PYTHONPATH=f"{folder}:{tests}")


def counts(ended: Ended):
    """(run, skipped) as unittest says, or None."""
    ran = re.search(r"^Ran (\d+) tests?", ended.output, re.MULTILINE)
    skipped = re.search(r"skipped=(\d+)", ended.output)
    return (int(ran[1]), int(skipped[1]) if skipped else 0) if ran else None
