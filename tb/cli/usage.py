"""Errors of usage that typer detects: one sentence and exit status 2, like those of :mod:`weft.tb.cli.options`."""

import contextlib

import typer
from typer.core import TyperGroup

from weft.tb.cli.options import refuse
from weft.tb.cli.perf import ABOUT as MEASUREMENTS

UsageError = typer.BadParameter.__base__
HELP = "NoArgsIsHelpError"      # of a command line without a word, which is answered by the help
OF_A_SERVER = ("unexpected extra argument", "No such option: -d", "No such option: --ib-dev")


def sentence(error):
    """Return the message of a usage error as a sentence, with a hint for options and arguments of perftest."""
    text = error.format_message().rstrip(".")
    command = error.ctx.info_name if error.ctx else ""
    if command in MEASUREMENTS and any(words in text for words in OF_A_SERVER):
        text += f"; weft {command} takes neither a server nor a device, because both hosts run in one process"
    return text


class Commands(TyperGroup):
    """Group of all commands."""

    def parse_args(self, ctx, args):
        with _refused():
            return super().parse_args(ctx, args)

    def invoke(self, ctx):
        with _refused():
            return super().invoke(ctx)


@contextlib.contextmanager
def _refused():
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == HELP:
            raise
        refuse(sentence(error))
