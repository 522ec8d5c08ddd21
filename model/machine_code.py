"""Compilation with numba, cached by content.

Numba itself detects only a change of the file that holds a function, not of the files of the functions it calls. The
cache therefore is in a folder named after the content of all relevant files: ``sim_build/numba/<hash>``, or below
``WEFT_BUILD``.
"""

import hashlib
import os
from pathlib import Path

import numba

# Without reference counts: the caller owns all arrays, and no function keeps one. Atomic counting for a dozen arrays
# at each call took seven eighths of the time of a wide-area experiment.
_OPTIONS = {"error_model": "numpy", "_nrt": False}


def kept_in(files):
    """Return the folder of the machine code of these files, or None if it is not writable."""
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
    """Compile ``function`` for use by other compiled functions only; Python cannot call it."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)


def inlined(function):
    """Compile as :func:`compiled`, inlined by LLVM into each caller, which saves a call in every slot."""
    return numba.njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)


def entries(files, *, nogil=False):
    """Return a decorator that compiles a function for calls from Python, and caches the machine code.

    Parameters
    ----------
    files : iterable of Path
        All files with functions that the function calls, and with constants that it uses.
    nogil : bool
        Release the interpreter's lock, so that threads run in parallel.
    """
    folder = kept_in(files)

    def entry(function):
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder or "")
        try:
            return numba.njit(cache=folder is not None, nogil=nogil, **_OPTIONS)(function)
        finally:
            numba.config.CACHE_DIR = before

    return entry
