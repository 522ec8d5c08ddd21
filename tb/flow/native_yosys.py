"""Runs a Yosys script by the native build that PyPI has (``pyosys``): several times as fast as WebAssembly.

``native_yosys.py SCRIPT SPENT``: CPU seconds of it and what it starts go into the file ``SPENT``.
"""

import resource
import sys
from pathlib import Path

from pyosys import libyosys


def main():
    """Run the script in this folder."""
    script, spent = sys.argv[1:]
    libyosys.run_pass(script, libyosys.Design())
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    Path(spent).write_text(str(sum(usage.ru_utime + usage.ru_stime for usage in usages)))


if __name__ == "__main__":
    main()
