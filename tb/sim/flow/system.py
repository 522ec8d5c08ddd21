"""Headers of the system that waves need, and whether a missing tool is a failure."""

import os
import subprocess

# {name: (consequence of its absence, Debian package)}
HEADERS = {
    "lz4.h": ("waves are written as VCD, not FST", "liblz4-dev"),
    "zlib.h": ("waves are written as VCD, not FST", "zlib1g-dev"),
}


def missing_headers():
    """Return the headers that the compiler does not find, in the form of :data:`HEADERS`."""
    return {name: hint for name, hint in HEADERS.items() if subprocess.run(
        ["g++", "-E", "-x", "c++", "-include", name, os.devnull], capture_output=True).returncode}


def tools_expected():
    """Return whether ``CI=true`` is set: then a missing tool is a failure, not a skip."""
    return os.environ.get("CI", "").lower() in ("true", "1")
