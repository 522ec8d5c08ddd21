"""What a person types, as values, or one sentence about what is wrong with it and exit status 2."""

import os
import sys
from pathlib import Path

import typer

from weft.hdl.contract import abi, params

BAD_USAGE = 2


def option(help_text, metavar="NUMBER"):
    """An option of a command; its text is checked by the functions below, all with sentences of one form."""
    return typer.Option(help=help_text, metavar=metavar)


def refuse(sentence):
    """End with one sentence on standard error and exit status 2."""
    print(f"weft: {sentence}", file=sys.stderr)
    raise typer.Exit(BAD_USAGE)


def number(name, text, kind, low, high):
    """``text`` as a number between ``low`` and ``high``, or an end with a sentence."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        what = "a whole number" if kind is int else "a number"
        refuse(f"{name} is {text!r}; it must be {what} from {low} to {high}")
    return value


def choice(name, value, choices):
    """``value`` if it is one of ``choices``, or an end with a sentence."""
    if value not in choices:
        refuse(f"{name} is {value!r}; choose one of {', '.join(map(str, choices))}")
    return value


def readable_file(path):
    """``path`` as a readable regular file, or an end with a sentence."""
    path = Path(path)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        refuse(f"the file {str(path)!r} does not exist")
    except OSError as error:
        refuse(f"the file {str(path)!r} cannot be read: {error.strerror}")
    if not path.is_file():
        refuse(f"{str(path)!r} is not a file")
    if not os.access(path, os.R_OK):
        refuse(f"the file {str(path)!r} cannot be read")
    return path.absolute()


def mappable_file(path, card):
    """``path`` as a readable file that fits the page table of the card, or an end with a sentence."""
    path, room = readable_file(path), card.ptes * abi.PAGE_4K
    if (size := path.stat().st_size) > room:
        refuse(f"the file {str(path)!r} has {size:,} bytes; a card of preset {card.name!r} maps at most {room:,}")
    return path


def card_params(name):
    """The preset ``name``, or an end with a sentence."""
    try:
        return params.preset(name)
    except ValueError as error:
        refuse(str(error))
