"""Digest of source files of this checkout: the key of cached results, which a change makes invalid."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def sources(*places, without=()):
    """Return a digest of Python files, by name and content.

    ``places`` are folders (with all files below them) and single files, relative to the root of the checkout. Files
    whose names begin with one of the tuple ``without`` are left out.
    """
    digest = hashlib.sha256()
    for file in _files(places):
        if not file.name.startswith(tuple(without)):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def last_change_ns(*places):
    """Return the time of the newest status change (``st_ctime``) of these files, in nanoseconds of the system clock."""
    return max(file.stat().st_ctime_ns for file in _files(places))


def _files(places):
    for place in places:
        path = ROOT / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
