"""``weft serve`` and ``weft run``: unmodified RDMA programs on hosts with a simulated card each."""

import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import BadSetting, Setting
from weft.tb.app.serve.commands import schedule_of
from weft.tb.app.serve.environment import FOLDER, LIBRARY_FOLDER, environment_of
from weft.tb.app.serve.settings import Settings
from weft.tb.cli.options import refuse

SOCKET_BYTES_MAX = 107


def serve(settings: Settings):
    """Serve hosts with an RDMA card each to unmodified programs, until interrupted: see `weft run`."""
    check_sockets(settings, socket.SOCK_SEQPACKET)
    settings.peer()     # this and the next line reject bad values before anything is built
    seed, _ = schedule_of(settings.faults, settings.hosts)
    settings = settings if seed is None else replace(settings, seed=seed)
    if settings.capture is not None:
        settings = replace(settings, capture=str(Path(settings.capture).resolve()))
    from weft.driver.ibverbs.build import CannotBuild, build
    from weft.tb.app.serve.served import serve_here
    try:
        build(LIBRARY_FOLDER)
    except CannotBuild as problem:
        refuse(str(problem))
    if settings.backend == "rtl":
        from weft.tb.app.serve.rtl_cases import serve_rtl
        serve_rtl(settings, report, on_end)
    else:
        ended = []
        on_end(lambda *_: ended.append(True))
        serve_here(settings, report, ended)


def check_sockets(settings, kind):
    """Reject a folder whose sockets have too long paths, or belong to another daemon that runs."""
    longest = max((os.fsencode(settings.socket(name)) for name in settings.hosts), key=len)
    if len(longest) > SOCKET_BYTES_MAX:
        raise BadSetting("folder", settings.folder, f"{os.fsdecode(longest)} is too long for a socket, of which paths "
                                                    f"have at most {SOCKET_BYTES_MAX} bytes")
    for name in settings.hosts:
        if _answers(path := settings.socket(name), kind):
            refuse(f"{path} is another daemon's, which runs; end that one, or choose another --folder")


def _answers(path, kind):
    """Return whether a daemon listens at a socket."""
    with socket.socket(socket.AF_UNIX, kind) as there:
        there.setblocking(False)
        try:
            there.connect(os.fsencode(path))
        except BlockingIOError:         # others wait there until it accepts them
            return True
        except OSError:
            return False
        return True


def on_end(function):
    """Call a function when this process must end."""
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, function)


def report(sentence):
    """Print a sentence at once."""
    print(sentence, flush=True)


def run(
    program: Annotated[list[str], typer.Argument(help="Program to run, and its arguments.", metavar="PROGRAM...")],
    host: Annotated[str, Setting("Name of a host that is served.", metavar="NAME")] = "a",
    folder: Annotated[Path, Setting("Folder of its socket.", metavar="PATH")] = FOLDER,
    network: Annotated[bool, Setting("Run it in a network of the hosts, in which their names are the addresses of "
                                     "their cards, for TCP, too.")] = False,
):
    """Run a program on a host of `weft serve`: its RDMA device is that host's card."""
    path = (folder / f"{host}.sock").resolve()
    if not path.is_socket():
        refuse(f"{path} is not a socket: no `weft serve` has a host {host} there")
    if network:
        from weft.tb.app.serve.network import NoNetwork, enter
        try:
            enter(path.parent, host)
        except NoNetwork as problem:
            refuse(str(problem))
    sys.stdout.flush()
    try:
        os.execvpe(program[0], program, environment_of(path))
    except OSError as error:
        refuse(f"{program[0]} cannot be run: {error.strerror}")
