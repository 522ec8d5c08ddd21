"""Bytes from one address to another, in machine code."""

import ctypes

import numba
from numba.core import types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

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
