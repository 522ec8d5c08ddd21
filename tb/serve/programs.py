"""The programs of others that run on served cards: what they are called, whose they are, and what they print."""

import re
import shutil
from dataclasses import dataclass, replace

RATE, MESSAGES, LATENCY, TIME = "MB/s", "Mpps", "us", "s"
_SECONDS = r"bytes in ([\d.]+) seconds"
_AVERAGE = r"^ *\d+ +\d+ +[\d.]+ +([\d.]+)"
_MESSAGES = r"^ *\d+ +\d+ +[\d.]+ +[\d.]+\s+([\d.]+)"
_TYPICAL = r"^ *\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+)"


@dataclass(frozen=True)
class Program:
    """A program with its options, a server and a client of it if it is a pair.

    Attributes
    ----------
    name, package : str
        Of the program, and Debian's of what has it.
    options, brief : tuple of str
        Its options, and those that make it do little.
    figure, unit : str or None
        Regular expression of the figure in its output, and what it is.
    pair : bool
        It is started twice: they say hello at a TCP port.
    """

    name: str
    package: str
    options: tuple = ()
    brief: tuple = ()
    figure: str | None = None
    unit: str | None = None
    pair: bool = True

    @property
    def there(self):
        """It is installed."""
        return shutil.which(self.name) is not None

    def command(self, port=None, server=None):
        """Argument list; of the client if there is the name of a ``server``."""
        where = ("-p", str(port), *((server,) if server else ())) if self.pair else ()
        return self.name, *self.options, *where

    def briefly(self):
        """The same with little to do."""
        return replace(self, options=(*self.options, *self.brief), brief=())

    def read(self, output):
        """The figure, or None."""
        found = re.search(self.figure, output, re.MULTILINE) if self.figure else None
        return float(found[1]) if found else None


def _utility(name, *options):
    return Program(name, "ibverbs-utils", options, pair=False)


def _pingpong(name, *options):
    return Program(name, "ibverbs-utils", ("-g", "0", *options), ("-n", "20"), _SECONDS, TIME)


def _bandwidth(verb, *options):
    figure = (_MESSAGES, MESSAGES) if verb == "atomic" else (_AVERAGE, RATE)     # of 8 bytes each: next to no rate
    return Program(f"ib_{verb}_bw", "perftest", ("-F", *options), ("-n", "20"), *figure)


def _latency(verb):
    return Program(f"ib_{verb}_lat", "perftest", ("-F",), ("-n", "20"), _TYPICAL, LATENCY)


VERBS = ("write", "send", "read", "atomic")
# perftest itself has no events for writes.
TABLE = (
    _utility("ibv_devices"), _utility("ibv_devinfo", "-v"),
    _pingpong("ibv_rc_pingpong"), _pingpong("ibv_srq_pingpong"),
    *(_pingpong(name, "-c", "-e") for name in ("ibv_rc_pingpong", "ibv_srq_pingpong")),
    *map(_bandwidth, VERBS), *(_bandwidth(verb, "-q", "4") for verb in VERBS),
    *(_bandwidth(verb, "-e") for verb in VERBS[1:]),
    *map(_latency, VERBS),
)


def missing_packages(programs=TABLE):
    """Debian's packages whose programs are not all there."""
    return sorted({program.package for program in programs if not program.there})
