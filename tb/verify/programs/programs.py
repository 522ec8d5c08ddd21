"""Third-party programs that run on served cards: their table, with packages, options and formats; a run of one."""

import re
import shlex
import shutil
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from weft.driver.cm.enums import PortSpace
from weft.tb.app.serve.functional import IP
from weft.tb.verify.programs.session import ended

RATE, MESSAGES, LATENCY = "MB/s", "Mpps", "us"
SERVER_IP = str(IPv4Address(IP + 1))      # of host b's card
LIMIT_S = 300
PASSED, FAILED, MISSING, TOO_LONG = "passed", "failed", "missing", "too long"
FORBIDDEN = "cannot run: "      # followed by the reason
# Failures of perftest on a busy machine: it calibrates the processor's cycle counter with a sleep, and with -R its
# client connects once after a handshake, when its server may not listen yet.
UNTIMED, UNHEARD = "Correlation coefficient r^2", "Event: RDMA_CM_EVENT_REJECTED; error: 8"
# ib_send_lat -e has one channel for both CQs. If the acknowledgement of its first message is lost, the event is that of
# the peer's message, and the program reads a completion that ibv_poll_cq did not fill: no status of verbs has 3 digits.
UNFILLED = r"Failed status -?\d{3}"
DISTURBED = re.compile("|".join((re.escape(UNTIMED), re.escape(UNHEARD), UNFILLED)))
RUNS_MAX = 5
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
    variables: tuple = ()           # of the environment, as NAME=VALUE
    network: bool = False           # in the network of the hosts, where names are addresses of cards
    endless: bool = False           # the server never ends by itself
    forbidden: tuple = ()           # (regular expression of its message, why it cannot run)
    kind: str = ""                  # separates the rows of one program, if the options do not
    shell: bool = False             # the roles are arguments of a shell, which starts the program
    before: tuple = ()              # command that makes what it needs
    ranks: tuple = ()               # the program that this one starts on both hosts

    @property
    def there(self):
        """Return whether the program is installed."""
        return shutil.which(self.name) is not None

    def command(self, port=None, server=None):
        """Return the argument list; with a ``server``, that of the client."""
        role = self.roles[server is not None] if self.pair else ()
        role = (part.format(port=port, server=server) for part in role)
        return *self._environment, "sh" if self.shell else self.name, *self.options, *role

    @property
    def _environment(self):
        return ("env", *self.variables) if self.variables else ()

    @property
    def label(self):
        """Return what separates the rows of one program: its options, or :attr:`kind`."""
        return self.kind or shlex.join((*self.variables, *self.options))

    def lines(self, port, server):
        """Return the command lines that a user types, that of the server first."""
        run = "weft run --network" if self.network else "weft run"
        ends = (("b", None), ("a", self.server(server))) if self.pair else (("a", None),)
        lines = [f"{run} --host {host} -- {shlex.join(self.command(port, peer))}" for host, peer in ends]
        return [shlex.join(command) for command in (self.before,) if command] + (
            [shlex.join(self.launched(("weft", "run")))] if self.ranks else lines)

    def server(self, address):
        """Return the name of the server, whose card has this address."""
        return "b" if self.network else address if self.on_card else "localhost"

    def launched(self, weft_run):
        """Return the command that starts one of the ranks on each host, each by a command ``weft_run``."""
        first, second = (("-n", "1", *weft_run, "--host", host, "--", *self.ranks) for host in "ab")
        return *self._environment, self.name, *self.options, *first, ":", *second

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


def _fabric(provider, endpoint):
    return Program("fi_pingpong", "libfabric-bin", ("-p", provider, "-e", endpoint, "-c"), ("-I", "3"),
                   r"^64 .* ([\d.]+) +[\d.]+ *$", LATENCY, roles=(("-B", "{port}"), ("-P", "{port}", "{server}")))


def _ucx(test, *options):
    return Program("ucx_perftest", "ucx-utils", ("-d", "weft0:1", "-x", "rc_verbs", "-t", test, *options, "-n", "200"),
                   ("-n", "20"), r"^Final: +\d+ +\S+ +\S+ +([\d.]+)", LATENCY)      # overall; the other one may be -nan


def _ucp(transports, test, *options):
    """Return a test of UCX's protocols above its transports."""
    shown = replace(_ucx(test, *options), variables=(f"UCX_TLS={transports}",) if transports else ())
    return replace(shown, options=shown.options[4:])


UCX_TRANSPORTS = (None, "rc_verbs,ud_verbs", "ud_verbs")      # rc_verbs alone cannot exchange addresses
UCP_TESTS = (("tag_lat",), ("tag_bw", "-s", "65536"), ("stream_lat",), ("stream_bw", "-s", "65536"), ("ucp_am_lat",),
             ("ucp_am_bw", "-s", "4096"), ("ucp_put_lat",), ("ucp_put_bw", "-s", "65536"), ("ucp_get", "-s", "65536"),
             *((f"ucp_{atomic}",) for atomic in ("add", "fadd", "swap", "cswap")))
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
    replace(_rdmacm("cmtime", "-c", "20"), endless=True),
    _rdmacm("ucmatose"), _rdmacm("ucmatose", "-c", "5", "-C", "20", "-S", "4096", brief=("-c", "2")),
    _rdmacm("rstream", "-T", "v", brief=("-S", "1024", "-C", "20")),
    _fabric("verbs", "msg"), _fabric("verbs;ofi_rxm", "rdm"), _fabric("verbs;ofi_rxd", "rdm"),
    replace(_fabric("verbs", "dgram"), reliable=False),
    *(_datagrams(_pingpong("ibv_ud_pingpong", *options)) for options in ((), ("-e",))),
    *(_datagrams(kind("send"), "-c", "UD") for kind in (_bandwidth, _latency)),
    *(_datagrams(_by_card(kind("send")), "-c", "UD") for kind in (_bandwidth, _latency)),
    Program("udaddy", "rdmacm-utils", ("-C", "50"), roles=((), ("-s", "{server}")), on_card=True, space=PortSpace.UDP,
            own_port=7174, reliable=False),
    Program("mckey", "rdmacm-utils", ("-m", "239.7.7.7", "-C", "20"), roles=((), ("-s",)), on_card=True, own_port=0,
            reliable=False),
    _ucx("put_lat"), _ucx("get", "-D", "zcopy", "-s", "65536"), _ucx("am_bw", "-D", "bcopy", "-s", "4096"),
    _ucx("add_lat"), *(_ucp(transports, *test) for transports in UCX_TRANSPORTS for test in UCP_TESTS),
)


def missing_packages(programs=TABLE):
    """Return Debian's packages of the programs that are missing."""
    return sorted({program.package for program in programs if not program.there})


def verdict(*ends):
    """Return the status of a program from its end, or of a pair from both ends."""
    if any(end.status is None for end in ends):
        return TOO_LONG
    return FAILED if any(end.status for end in ends) else PASSED


def one(session, program, port, limit_s=LIMIT_S):
    """Run a program, again if its own error ended it (:data:`DISTURBED`); return (status, figure, output)."""
    if not program.there:
        return MISSING, None, ""
    for _ in range(RUNS_MAX):
        status, figure, output = _once(session, program, port, limit_s)
        if status not in (FAILED, TOO_LONG) or not DISTURBED.search(output):
            break
    return status, figure, output


def _once(session, program, port, limit_s):
    ends = _ends(session, program, port, limit_s)
    status, output = verdict(*ends), "\n".join(end.output for end in ends)
    figure = program.read(ends[-1].output)
    if status == PASSED and program.figure and not figure:      # perftest prints 0 without a calibrated clock
        status = FAILED
    if status in (FAILED, TOO_LONG) and program.forbidden and re.search(program.forbidden[0], output):
        status = FORBIDDEN + program.forbidden[1]
    return status, figure, output


def _ends(session, program, port, limit_s):
    """Run a program once; return the :class:`Ended` of each end."""
    if program.before:
        prepared = ended(session.start_plainly(*program.before), limit_s)
        if prepared.status:
            return [prepared]
    if program.ranks:
        return [ended(session.start_plainly(*program.launched(session.weft_run())), limit_s)]
    if not program.pair:
        return [session.run("a", *program.command(port), limit_s=limit_s)]
    server = program.server(SERVER_IP)
    return session.run_pair(program.command(port), program.command(port, server),
                            port=port if program.own_port is None else program.own_port, on_card=program.on_card,
                            space=program.space, network=program.network, endless=program.endless, limit_s=limit_s)
