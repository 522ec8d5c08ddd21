"""Failures of a command: one sentence on standard error, exit status 1."""

import errno
import functools
import sys

import typer

from weft.tb.sim.flow.failure import INTERRUPTED, Failure

FAILED = 1
ELSEWHERE = "or name another folder in WEFT_BUILD"
ON_DISK = {
    errno.ENOSPC: "the disk{of} is full; free space, " + ELSEWHERE,
    errno.EDQUOT: "the disk quota{of} is used up; free space, " + ELSEWHERE,
    errno.ENOTDIR: "{path} cannot be made, because a part of it is not a folder; move that away, " + ELSEWHERE,
    errno.EEXIST: "{path} is not a folder; move it away, " + ELSEWHERE,
    errno.EROFS: "{path} cannot be written, because the disk is read-only; work on another one, " + ELSEWHERE,
    errno.EACCES: "{path} may not be written or read by you; change its permissions or its owner, " + ELSEWHERE,
    errno.EPERM: "{path} may not be changed by you; change its permissions or its owner, " + ELSEWHERE,
}


def fail(sentence):
    """End with one sentence on standard error and exit status 1."""
    print(f"weft: {sentence}", file=sys.stderr)
    raise typer.Exit(FAILED)


def sentence_of(error):
    """Return a sentence about an ``OSError`` for the user."""
    if error.errno == errno.ENOENT and error.filename is None:
        return "the working folder does not exist any more; change to one that does"
    path = repr(str(error.filename)) if error.filename is not None else "a file"
    of = f" of {path}" if error.filename is not None else ""
    return ON_DISK.get(error.errno, f"{{path}}: {error.strerror or error}").format(path=path, of=of)


def with_messages(command):
    """Wrap ``command`` so that failures which the user can correct end with one sentence instead of a traceback.

    An interrupted command ends with a sentence, too.
    """
    @functools.wraps(command)
    def run(*arguments, **options):
        try:
            return command(*arguments, **options)
        except BrokenPipeError:
            raise
        except Failure as failure:
            fail(failure)
        except OSError as error:
            fail(sentence_of(error))
        except KeyboardInterrupt:
            print("weft: stopped", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
    return run
