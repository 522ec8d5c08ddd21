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
        It is started twice: they say hello at a port.
    roles : tuple of two tuples of str
        What makes it the server, or the client, and says the port and the server's address: ``{port}``, ``{server}``.
    on_card : bool
        It is a port of the server's card, and not of TCP.
    """

    name: str
    package: str
    options: tuple = ()
    brief: tuple = ()
    figure: str | None = None
    unit: str | None = None
    pair: bool = True
    roles: tuple = (("-p", "{port}"), ("-p", "{port}", "{server}"))
    on_card: bool = False

    @property
    def there(self):
        """It is installed."""
        return shutil.which(self.name) is not None

    def command(self, port=None, server=None):
        """Argument list; of the client if there is the name of a ``server``."""
        role = self.roles[server is not None] if self.pair else ()
        return self.name, *self.options, *(part.format(port=port, server=server) for part in role)

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


def _latency(verb, *options):
    return Program(f"ib_{verb}_lat", "perftest", ("-F", *options), ("-n", "20"), _TYPICAL, LATENCY)


def _by_card(program):
    """The same, but its ends meet at the card: no TCP."""
    return replace(program, options=(*program.options, "-R"), on_card=True)


def _rdmacm(name, *options, brief=(), figure=None, unit=None, client=("-s", "{server}"), server=()):
    port = ("-p", "{port}")
    return Program(name, "rdmacm-utils", options, brief, figure, unit, roles=((*server, *port), (*client, *port)),
                   on_card=True)


def _ucx(test, *options):
    return Program("ucx_perftest", "ucx-utils", ("-d", "weft0:1", "-x", "rc_verbs", "-t", test, *options, "-n", "200"),
                   ("-n", "20"), r"^Final: +\d+ +\S+ +\S+ +([\d.]+)", LATENCY)      # over all: the other may be -nan


VERBS = ("write", "send", "read", "atomic")
# perftest itself has no events for writes, and several QPs for rates alone.
TABLE = (
    _utility("ibv_devices"), _utility("ibv_devinfo", "-v"),
    _pingpong("ibv_rc_pingpong"), _pingpong("ibv_srq_pingpong"),
    *(_pingpong(name, "-c", "-e") for name in ("ibv_rc_pingpong", "ibv_srq_pingpong")),
    *map(_bandwidth, VERBS), *(_bandwidth(verb, "-q", "4") for verb in VERBS),
    *(_bandwidth(verb, "-e") for verb in VERBS[1:]),
    *map(_latency, VERBS), *(_latency(verb, "-e") for verb in VERBS[1:]),
    *(_by_card(kind(verb)) for kind in (_bandwidth, _latency) for verb in VERBS),
    _rdmacm("rping", "-V", "-C", "100", brief=("-C", "10"), server=("-s",), client=("-c", "-a", "{server}")),
    _rdmacm("ucmatose"), _rdmacm("ucmatose", "-c", "5", "-C", "20", "-S", "4096", brief=("-c", "2")),
    _rdmacm("rstream", "-T", "v", brief=("-S", "1024", "-C", "20")),
    Program("fi_pingpong", "libfabric-bin", ("-p", "verbs", "-e", "msg", "-c"), ("-I", "3"),
            r"^64 .* ([\d.]+) +[\d.]+ *$", LATENCY, roles=(("-B", "{port}"), ("-P", "{port}", "{server}"))),
    _ucx("put_lat"), _ucx("get", "-D", "zcopy", "-s", "65536"), _ucx("am_bw", "-D", "bcopy", "-s", "4096"),
    _ucx("add_lat"),
)


def missing_packages(programs=TABLE):
    """Debian's packages whose programs are not all there."""
    return sorted({program.package for program in programs if not program.there})
