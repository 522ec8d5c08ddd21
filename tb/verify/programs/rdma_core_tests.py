"""rdma-core's tests of pyverbs, where Debian's package installs them."""

import gzip
import shutil
from pathlib import Path

DEBIAN = Path("/usr/share/doc/rdma-core/tests")


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
