"""All arrays of a :class:`World` as one array of numbers, which numba takes over in no time: where they are, and how
large."""

import numba
import numpy as np

from ...machine_code import viewing
from .state import CARD, EVENT, FRAME, GLOBAL, JOB, LANE, MR, QP, READ, STREAM, WORK, World

WIDTH = 5       # address and up to four sizes of an array


def table(w):
    """The numbers of a World."""
    found = np.zeros((len(w) - 1, WIDTH), np.int64)
    for row, array in zip(found, w[1:], strict=True):
        row[0], row[1:1 + array.ndim] = array.ctypes.data, array.shape
    return found


if numba.config.DISABLE_JIT:
    def table(w):
        """The World itself, in a list."""
        found = []
        found.append(w._replace(t=found))
        return found

    def world(t):
        """The World of such a list."""
        return t[0]
else:
    from numba import carray
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic
    def pointer(context, address):
        """An address as a pointer."""
        def code(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))
        return types.voidptr(types.int64), code

    F8, I8, U1 = np.dtype("f8"), np.dtype("i8"), np.dtype("u1")

    @viewing
    def world(t):
        """The World of a table, for compiled functions."""
        return World(
            t,
            carray(pointer(t[0, 0]), (t[0, 1],), GLOBAL),
            carray(pointer(t[1, 0]), (t[1, 1],), EVENT),
            carray(pointer(t[2, 0]), (t[2, 1],), CARD),
            carray(pointer(t[3, 0]), (t[3, 1], t[3, 2]), LANE),
            carray(pointer(t[4, 0]), (t[4, 1], t[4, 2], t[4, 3]), JOB),
            carray(pointer(t[5, 0]), (t[5, 1], t[5, 2], t[5, 3], t[5, 4]), F8),
            carray(pointer(t[6, 0]), (t[6, 1], t[6, 2], t[6, 3], t[6, 4]), I8),
            carray(pointer(t[7, 0]), (t[7, 1], t[7, 2], t[7, 3]), I8),
            carray(pointer(t[8, 0]), (t[8, 1], t[8, 2]), STREAM),
            carray(pointer(t[9, 0]), (t[9, 1],), WORK),
            carray(pointer(t[10, 0]), (t[10, 1],), FRAME),
            carray(pointer(t[11, 0]), (t[11, 1],), U1),
            carray(pointer(t[12, 0]), (t[12, 1],), READ),
            carray(pointer(t[13, 0]), (t[13, 1], t[13, 2], t[13, 3]), F8),
            carray(pointer(t[14, 0]), (t[14, 1], t[14, 2], t[14, 3]), F8),
            carray(pointer(t[15, 0]), (t[15, 1], t[15, 2]), F8),
            carray(pointer(t[16, 0]), (t[16, 1], t[16, 2]), F8),
            carray(pointer(t[17, 0]), (t[17, 1], t[17, 2]), QP),
            carray(pointer(t[18, 0]), (t[18, 1], t[18, 2]), MR),
            carray(pointer(t[19, 0]), (t[19, 1], t[19, 2]), I8),
            carray(pointer(t[20, 0]), (t[20, 1], t[20, 2], t[20, 3]), F8),
            carray(pointer(t[21, 0]), (t[21, 1], t[21, 2], t[21, 3]), F8),
            carray(pointer(t[22, 0]), (t[22, 1], t[22, 2], t[22, 3]), F8),
            carray(pointer(t[23, 0]), (t[23, 1], t[23, 2], t[23, 3]), F8),
            carray(pointer(t[24, 0]), (t[24, 1], t[24, 2], t[24, 3]), F8),
            carray(pointer(t[25, 0]), (t[25, 1], t[25, 2], t[25, 3]), F8),
            carray(pointer(t[26, 0]), (t[26, 1], t[26, 2], t[26, 3]), F8),
            carray(pointer(t[27, 0]), (t[27, 1], t[27, 2], t[27, 3], t[27, 4]), F8),
            carray(pointer(t[28, 0]), (t[28, 1], t[28, 2]), F8),
            carray(pointer(t[29, 0]), (t[29, 1], t[29, 2], t[29, 3]), F8),
            carray(pointer(t[30, 0]), (t[30, 1], t[30, 2], t[30, 3]), F8),
            carray(pointer(t[31, 0]), (t[31, 1], t[31, 2]), I8),
        )
