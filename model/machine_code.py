"""Compilation with numba, kept by content.

Numba itself notices only a change of the file that holds a function, not of those the function calls. So what it
keeps lies in a folder named by the content of all files that count: ``sim_build/numba/<hash>``, or below
``WEFT_BUILD``.
"""

import hashlib
import os
from pathlib import Path

import numba

# Without reference counts: all arrays are the caller's, no function keeps one. Counting them, atomically and
# for each of a dozen arrays at each call, took seven eighths of the time of a wide-area experiment.
_OPTIONS = {"error_model": "numpy", "_nrt": False}


def kept_in(files):
    """Where machine code of these files is kept, or None if nothing can be written there."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in (Path(__file__), *files):
        digest.update(file.read_bytes())
    folder = Path(os.environ.get("WEFT_BUILD") or "sim_build").absolute() / "numba" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def compiled(function):
    """``function`` as machine code for other compiled functions, which hold it in theirs; Python cannot call it."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)


def inlined(function):
    """As :func:`compiled`, put into each caller by LLVM: what happens in every slot costs no call."""
    return numba.njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)


def entries(files, *, nogil=False):
    """A decorator: a function as machine code that Python calls and that is kept.

    Parameters
    ----------
    files : iterable of Path
        All that hold what the function calls, and the numbers in it.
    nogil : bool
        Without the interpreter's lock, so that threads run side by side.
    """
    folder = kept_in(files)

    def entry(function):
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder or "")
        try:
            return numba.njit(cache=folder is not None, nogil=nogil, **_OPTIONS)(function)
        finally:
            numba.config.CACHE_DIR = before

    return entry
