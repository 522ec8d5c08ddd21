"""Settings that several commands share, with the mechanism of :mod:`weft.driver.terms.settings`."""

import os
from pathlib import Path
from typing import Any

from weft.driver.congestion.algorithms import ALGORITHMS
from weft.driver.terms.settings import BadSetting, BadSettings, Field, Setting, check, fields, unknown, words
from weft.hdl.contract import params, wire

__all__ = ["CONGESTION", "BadSetting", "BadSettings", "Field", "PMTUS", "PRESET", "RTT_US", "SEED", "SEED_MAX",
           "Setting", "chance", "check", "fields", "readable_file", "unknown", "words"]

SEED_MAX = (1 << 31) - 1


def readable_file(text: str) -> Path:
    """Return the absolute path of a regular, readable file.

    Raises
    ------
    ValueError
        With the second half of a sentence.
    """
    path = Path(text)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError("the file does not exist") from None
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    if not path.is_file():
        raise ValueError("it is not a file")
    if not os.access(path, os.R_OK):
        raise ValueError("the file cannot be read")
    return path.absolute()


def chance(text: str, **more: Any) -> Setting:
    """Return the setting of a probability."""
    return Setting(text, least=0, most=1, **more)


# Settings that several commands share.
SEED = Setting("Seed of every random choice.", least=0, most=SEED_MAX)
RTT_US = Setting("Round trip time of the link.", unit="microseconds", least=0, most=1_000_000)
CONGESTION = Setting("Congestion control of all queue pairs.", choices=tuple(ALGORITHMS))
PRESET = Setting("Size of the cards.", choices=tuple(params.PRESETS))
PMTUS = tuple(wire.PMTUS.values())
