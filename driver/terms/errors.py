"""Errors of pyverbs, with an error code of the verbs and a message.

Each is also the most similar Python error, for programs that do not use pyverbs errors.
"""

import errno
import os


class PyverbsError(Exception):
    """Base of all errors. An ``error_code`` is appended to the message, with its text."""

    def __init__(self, msg, error_code=-1):
        if error_code != -1:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(abs(error_code))}"
        super().__init__(msg)


class PyverbsRDMAError(PyverbsError):
    """Failure of a verb.

    Attributes
    ----------
    error_code : int
        Of ``errno``; negated for the few verbs that return it so. −1 if there is none.
    """

    code = -1

    def __init__(self, msg, error_code=None):
        self.error_code = self.code if error_code is None else error_code
        super().__init__(msg, self.error_code)


class PyverbsUserError(PyverbsError):
    """Invalid use by the program."""

    def __init__(self, msg):
        super().__init__(msg)


class InvalidValue(PyverbsRDMAError, ValueError):
    """An argument is invalid, or invalid in the current state."""

    code = errno.EINVAL


class NotSupported(InvalidValue):
    """The verbs define the request, but this implementation does not support it."""

    code = errno.EOPNOTSUPP


class InUse(InvalidValue):
    """Another object still needs this one."""

    code = errno.EBUSY


class QueueFull(PyverbsRDMAError, BufferError):
    """The queue has no space for another request."""

    code = errno.ENOMEM


class OutOfResources(PyverbsRDMAError, MemoryError):
    """The card or the host has no resources for another object."""

    code = errno.ENOMEM


class QueueOverrun(PyverbsRDMAError, OverflowError):
    """Completions were lost."""

    code = errno.EOVERFLOW


class TimedOut(PyverbsRDMAError, TimeoutError):
    """The time-out expired."""

    code = errno.ETIMEDOUT
