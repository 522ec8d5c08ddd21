"""What goes wrong, as pyverbs names it: the code of the verbs, and a sentence.

An error is also the Python error that fits it best, for programs that know nothing of verbs.
"""

import errno
import os


class PyverbsError(Exception):
    """Base of all; with an ``error_code`` its text is part of the message."""

    def __init__(self, msg, error_code=-1):
        if error_code != -1:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(abs(error_code))}"
        super().__init__(msg)


class PyverbsRDMAError(PyverbsError):
    """A verb failed.

    Attributes
    ----------
    error_code : int
        Of ``errno``; the few verbs that return it negated leave it so. −1 if there is none.
    """

    code = -1

    def __init__(self, msg, error_code=None):
        self.error_code = self.code if error_code is None else error_code
        super().__init__(msg, self.error_code)


class PyverbsUserError(PyverbsError):
    """The program asked for something that makes no sense in itself."""

    def __init__(self, msg):
        super().__init__(msg)


class InvalidValue(PyverbsRDMAError, ValueError):
    """An argument is impossible, or not possible now."""

    code = errno.EINVAL


class NotSupported(InvalidValue):
    """What is asked for exists in the verbs, but not here."""

    code = errno.EOPNOTSUPP


class InUse(InvalidValue):
    """Something else still needs it."""

    code = errno.EBUSY


class QueueFull(PyverbsRDMAError, BufferError):
    """As many requests as the queue holds are outstanding."""

    code = errno.ENOMEM


class NoRoom(PyverbsRDMAError, MemoryError):
    """The card or the host has no room for another one."""

    code = errno.ENOMEM


class QueueOverrun(PyverbsRDMAError, OverflowError):
    """Completions were lost."""

    code = errno.EOVERFLOW


class TimedOut(PyverbsRDMAError, TimeoutError):
    """What was waited for did not come in time."""

    code = errno.ETIMEDOUT
