"""Compilation with numba, kept by content as that of the wide-area experiments is."""

import ctypes
import functools
import hashlib
import os
from pathlib import Path

import numba
from numba.core import types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

HERE = Path(__file__).parent
NUMBERS = ("hdl/abi.py", "hdl/wire.py", *(f"model/card/{name}.py" for name in ("pcie", "timing", "transmit")))


@functools.cache
def cache_folder():
    """Where machine code is kept, named by the content of this folder and of the files its numbers come from; None if
    nothing can be written there."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in (*sorted(HERE.glob("*.py")), *(HERE.parents[2] / name for name in NUMBERS)):
        digest.update(file.read_bytes())
    folder = Path(os.environ.get("WEFT_BUILD") or "sim_build").absolute() / "numba" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def compiled(function):
    """``function`` as machine code for other compiled functions."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")(function)


def inlined(function):
    """As :func:`compiled`, put into each caller."""
    return numba.njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")(function)


def entry(function):
    """``function`` as machine code that Python calls and that is kept."""
    folder, before = cache_folder(), numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or "")
    try:
        return numba.njit(cache=folder is not None, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before


if numba.config.DISABLE_JIT:
    def copy(to, source, length):
        """Copy bytes between two addresses of this process."""
        ctypes.memmove(int(to), int(source), int(length))
else:
    @intrinsic
    def copy(context, to, source, length):
        """Copy bytes between two addresses of this process."""
        def code(context, builder, signature, arguments):
            pointer = context.get_value_type(types.voidptr)
            raw_memcpy(builder, builder.inttoptr(arguments[0], pointer), builder.inttoptr(arguments[1], pointer),
                       arguments[2], 1)
            return context.get_dummy_value()
        return types.void(types.int64, types.int64, types.int64), code
