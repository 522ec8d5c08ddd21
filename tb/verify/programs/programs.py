"""Table of the third-party programs that run on served cards: names, packages, options and output formats."""

import re
import shutil
from dataclasses import dataclass, replace

from weft.driver.cm.enums import PortSpace

RATE, MESSAGES, LATENCY = "MB/s", "Mpps", "us"
_ITERATION = r"([\d.]+) usec/iter"
_AVERAGE = r"^ *\d+ +\d+ +[\d.]+ +([\d.]+)"
_MESSAGES = r"^ *\d+ +\d+ +[\d.]+ +[\d.]+\s+([\d.]+)"
_TYPICAL = r"^ *\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+)"


@dataclass(frozen=True)
class Program:
    """Program with its options; if it is a pair, it runs as server and client, which connect through a port."""

    name: str
    package: str                    # of Debian
    options: tuple = ()
    brief: tuple = ()               # further options that shorten the run
    figure: str | None = None       # regular expression of the figure in the output
    unit: str | None = None
    pair: bool = True
    # Arguments that select server or client, and give the port and the server's address.
    roles: tuple = (("-p", "{port}"), ("-p", "{port}", "{server}"))
    on_card: bool = False           # the port belongs to the server's card, not to TCP
    space: PortSpace = PortSpace.TCP
    own_port: int | None = None     # that of a program without an option for it; 0: the server does not listen
    reliable: bool = True           # False: it waits for datagrams for ever if one is lost
    transports: str | None = None   # of UCX

    @property
    def there(self):
        """Return whether the program is installed."""
        return shutil.which(self.name) is not None

    def command(self, port=None, server=None):
        """Return the argument list; with a ``server``, that of the client."""
        role = self.roles[server is not None] if self.pair else ()
        environment = ("env", f"UCX_TLS={self.transports}") if self.transports else ()
        return *environment, self.name, *self.options, *(part.format(port=port, server=server) for part in role)

    def briefly(self):
        """Return the program with options that shorten the run."""
        return replace(self, options=(*self.options, *self.brief), brief=())

    def read(self, output):
        """Return the figure in the output, or None."""
        found = re.search(self.figure, output, re.MULTILINE) if self.figure else None
        return float(found[1]) if found else None


def _utility(name, *options):
    return Program(name, "ibverbs-utils", options, pair=False)


def _pingpong(name, *options):
    return Program(name, "ibverbs-utils", ("-g", "0", *options), ("-n", "20"), _ITERATION, LATENCY)


def _bandwidth(verb, *options):
    figure = (_MESSAGES, MESSAGES) if verb == "atomic" else (_AVERAGE, RATE)     # of 8 bytes: the byte rate is too low
    return Program(f"ib_{verb}_bw", "perftest", ("-F", *options), ("-n", "20"), *figure)


def _latency(verb, *options):
    return Program(f"ib_{verb}_lat", "perftest", ("-F", *options), ("-n", "20"), _TYPICAL, LATENCY)


def _by_card(program):
    """Return the program with connection management by the card instead of TCP."""
    return replace(program, options=(*program.options, "-R"), on_card=True)


def _datagrams(program, *options):
    """Return the program with datagrams instead of connections."""
    return replace(program, options=(*program.options, *options), reliable=False)


def _rdmacm(name, *options, brief=(), client=("-s", "{server}"), server=()):
    port = ("-p", "{port}")
    return Program(name, "rdmacm-utils", options, brief, roles=((*server, *port), (*client, *port)), on_card=True)


def _ucx(test, *options):
    return Program("ucx_perftest", "ucx-utils", ("-d", "weft0:1", "-x", "rc_verbs", "-t", test, *options, "-n", "200"),
                   ("-n", "20"), r"^Final: +\d+ +\S+ +\S+ +([\d.]+)", LATENCY)      # overall; the other one may be -nan


def _ucp(transports, test, *options):
    """Return a test of UCX's protocols above its transports."""
    shown = replace(_ucx(test, *options), transports=transports)
    return replace(shown, options=shown.options[4:])


VERBS = ("write", "send", "read", "atomic")
# perftest does not support events for writes, and supports several QPs for rates only.
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
    *(_datagrams(_pingpong("ibv_ud_pingpong", *options)) for options in ((), ("-e",))),
    *(_datagrams(kind("send"), "-c", "UD") for kind in (_bandwidth, _latency)),
    *(_datagrams(_by_card(kind("send")), "-c", "UD") for kind in (_bandwidth, _latency)),
    Program("udaddy", "rdmacm-utils", ("-C", "50"), roles=((), ("-s", "{server}")), on_card=True, space=PortSpace.UDP,
            own_port=7174, reliable=False),
    Program("mckey", "rdmacm-utils", ("-m", "239.7.7.7", "-C", "20"), roles=((), ("-s",)), on_card=True, own_port=0,
            reliable=False),
    _ucx("put_lat"), _ucx("get", "-D", "zcopy", "-s", "65536"), _ucx("am_bw", "-D", "bcopy", "-s", "4096"),
    _ucx("add_lat"), _ucp("ud_verbs", "tag_lat"), _ucp("ud_verbs", "stream_lat"),
    _ucp("rc_verbs,ud_verbs", "tag_bw", "-s", "65536"), _ucp("rc_verbs,ud_verbs", "ucp_get", "-s", "65536"),
    _ucp("rc_verbs,ud_verbs", "ucp_am_bw", "-s", "4096"), _ucp("rc_verbs,ud_verbs", "ucp_fadd"),
)


def missing_packages(programs=TABLE):
    """Return Debian's packages of the programs that are missing."""
    return sorted({program.package for program in programs if not program.there})
