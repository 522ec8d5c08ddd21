"""``weft serve`` and ``weft run``: unmodified RDMA programs on hosts with a simulated card each."""

import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.tb.app.serve.environment import FOLDER, LIBRARY_FOLDER, environment_of
from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import card_params, choice, number, refuse

BACKENDS, TIMES = ("functional", "model", "rtl"), ("wall", "sim")
UDP = re.compile(r"udp:([^:]+):(\d+)(?::(\d+))?", re.ASCII)
HOST, HOSTS_MAX = re.compile(r"[a-z][a-z0-9_-]{0,30}"), 200
DELAY_US_MAX, RTL_HOSTS, PORT_MAX, SOCKET_BYTES_MAX = 1_000_000, 2, 0xFFFF, 107


def serve(
    backend: Annotated[str, typer.Option(help="What plays the cards: functional, model or rtl.")] = "functional",
    hosts: Annotated[str, typer.Option(help="Names of the hosts, with commas between.")] = "a,b",
    loss: Annotated[str, typer.Option(help="Chance of every frame to get lost.")] = "0",
    delay_us: Annotated[str, typer.Option(help="From one host to another, microseconds.")] = "1",
    time: Annotated[str, typer.Option(help="What a program's clock shows: wall, or sim, that of the cards.")] = "wall",
    preset: Annotated[str, typer.Option(help="Size of the cards: test, basic or full.",
                                        show_default="full, of RTL test")] = "",
    seed: Annotated[str, typer.Option(help="Of every random choice of link and cards.")] = "1",
    folder: Annotated[Path, typer.Option(help="Where the sockets are made.")] = FOLDER,
    link: Annotated[str, typer.Option(help="udp:HOST:PORT, or udp:HOST:PORT:OWN-PORT: to the hosts of another daemon.",
                                      show_default="none")] = "",
    first: Annotated[str, typer.Option(help="The first host's number, 10.0.0.1 is that of number 1.")] = "1",
    capture: Annotated[Path | None, typer.Option(help="Where captures (pcap) of each host are put.")] = None,
):
    """Serve hosts with an RDMA card each to unmodified programs, until it is interrupted: see `weft run`."""
    choice("--backend", backend, BACKENDS)
    choice("--time", time, TIMES)
    names = hosts.split(",")
    if len(set(names)) < len(names) or not all(map(HOST.fullmatch, names)) or len(names) > HOSTS_MAX:
        refuse(f"--hosts is {hosts!r}; different names are needed, of small letters and digits, with commas between")
    if link and (backend == "rtl" or time == "sim"):
        refuse("--link needs cards in Python, and the clock on the wall")
    number_of_first = number("--first", first, int, 1, HOSTS_MAX + 1 - len(names))
    lost, delay = number("--loss", loss, float, 0, 1), number("--delay-us", delay_us, float, 0, DELAY_US_MAX)
    if backend == "rtl" and len(names) != RTL_HOSTS:
        refuse(f"--hosts is {hosts!r}; there are {RTL_HOSTS} cards of RTL, and so many hosts are needed")
    longest = max((os.fsencode(_socket(folder, name)) for name in names), key=len)
    if len(longest) > SOCKET_BYTES_MAX:
        refuse(f"--folder is {str(folder)!r}; {os.fsdecode(longest)} is too long for a socket, of which paths have at "
               f"most {SOCKET_BYTES_MAX} bytes")
    for name in names:
        if _answers(path := _socket(folder, name)):
            refuse(f"{path} is another daemon's, which runs; end that one, or choose another --folder")
    peer = _peer(link) if link else None
    with needs("sim"):
        from weft.driver.ibverbs.build import CannotBuild, build
        from weft.tb.app.serve.served import Settings, serve_here
    try:
        build(LIBRARY_FOLDER)
    except CannotBuild as problem:
        refuse(str(problem))
    card = card_params(preset or ("test" if backend == "rtl" else "full"))
    settings = Settings(str(folder), names, backend, time, lost, round(delay * 1000), seed, card.name,
                        str(capture.resolve()) if capture is not None else None, peer, number_of_first)
    if backend == "rtl":
        from weft.tb.app.serve.rtl import serve_rtl
        serve_rtl(settings, _say, _on_end)
    else:
        ended = []
        _on_end(lambda *_: ended.append(True))
        serve_here(settings, _say, ended)


def _socket(folder, host):
    """Where a host's socket is."""
    return (folder / f"{host}.sock").resolve()


def _answers(path):
    """Somebody listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
        try:
            there.connect(os.fsencode(path))
        except OSError:
            return False
        return True


def _peer(link):
    """What ``--link`` says, as :class:`~weft.tb.app.serve.udp_link.UdpLink` takes it, or an end with a sentence."""
    said = UDP.fullmatch(link)
    if not said:
        refuse(f"--link is {link!r}; udp:HOST:PORT is needed, and :OWN-PORT behind it if this daemon has another one")
    host, port, own_port = said.groups()
    port = number("the port of --link", port, int, 1, PORT_MAX)
    own = number("the own port of --link", own_port, int, 1, PORT_MAX) if own_port else port
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (socket.gaierror, UnicodeError) as error:
        refuse(f"--link is {link!r}; host {host!r} is not found: {getattr(error, 'strerror', None) or error}")
    return family, address, own


def _on_end(function):
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, function)


def _say(sentence):
    print(sentence, flush=True)


def run(
    program: Annotated[list[str], typer.Argument(help="What to run, and its arguments.", metavar="PROGRAM...")],
    host: Annotated[str, typer.Option(help="Name of a host that is served.")] = "a",
    folder: Annotated[Path, typer.Option(help="Where its socket is.")] = FOLDER,
):
    """Run a program on a host of `weft serve`: its RDMA device is that host's card."""
    path = _socket(folder, host)
    if not path.is_socket():
        refuse(f"{path} is no socket: no `weft serve` has a host {host} there")
    sys.stdout.flush()
    try:
        os.execvpe(program[0], program, environment_of(path))
    except OSError as error:
        refuse(f"{program[0]} cannot be run: {error.strerror}")
