"""What the files of this checkout say, as one digest: results are kept by it, and made anew after a change."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def sources(*places, without=()):
    """Digest of Python files, by name and content.

    Parameters
    ----------
    places : str
        Folders with all below them, and single files, from the root of the checkout.
    without : tuple of str
        Files whose names begin so do not count.
    """
    digest = hashlib.sha256()
    for file in _files(places):
        if not file.name.startswith(tuple(without)):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def last_change_ns(*places):
    """When the last of these files came, or was written: by the clock of the system, in nanoseconds."""
    return max(file.stat().st_ctime_ns for file in _files(places))


def _files(places):
    for place in places:
        path = ROOT / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
