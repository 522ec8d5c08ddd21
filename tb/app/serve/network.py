"""Network namespace of a daemon's hosts, in which the name of a host is the address of its card, for TCP, too.

Its loopback interface has the addresses of all cards, and its ``/etc/hosts`` their names. The first program that needs
the namespace starts a process that holds it until the daemon ends.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv6Address
from pathlib import Path
from typing import NoReturn, TextIO

NEW_MOUNTS, NEW_UTS, NEW_USER, NEW_NETWORK = 0x2_0000, 0x400_0000, 0x1000_0000, 0x4000_0000      # linux/sched.h
BIND, REC, SLAVE = 0x1000, 0x4000, 0x8_0000                                                      # linux/mount.h
SET_FLAGS, SET_ADDRESS, SET_MASK, UP = 0x8914, 0x8916, 0x891C, 1                                 # linux/sockios.h
KINDS = ("user", "mnt", "net")
GIDS, HOSTS = "class/infiniband/*/ports/*/gids/0", Path("/etc/hosts")
_LIBC = ctypes.CDLL(None, use_errno=True)


class NoNetwork(Exception):
    """The namespace cannot be used; the message is a sentence."""


def enter(folder: Path, host: str) -> None:
    """Move this process, which has one thread, to the network of the hosts served below ``folder``, as ``host``.

    Raises
    ------
    NoNetwork
    """
    names = names_below(folder)
    try:
        with (folder / "network").open("a+") as note, (folder / "network.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)      # one program at a time looks for the holder
            with contextlib.suppress(BlockingIOError):      # a holder has the lock
                fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _start(folder, host, names, note)
            note.seek(0)
            _join(int(note.read()))
        _call("unshare", NEW_UTS)
        socket.sethostname(host)
    except OSError as problem:
        lines = "".join(f"{ip} {name}\\n" for name, ip in names.items())
        commands = [*(f"ip address add {ip}/32 dev lo" for ip in names.values()), f"printf '{lines}' >> {HOSTS}"]
        raise NoNetwork(f"this system permits no network namespace ({problem}); run as root: {' && '.join(commands)}; "
                        "then run the program without --network") from None


def names_below(folder: Path) -> dict[str, str]:
    """Return the addresses of the hosts that a daemon serves below ``folder``, by name.

    A daemon that was killed leaves the files of its hosts, and sockets at which no process listens.
    """
    return {tree.stem: str(IPv6Address(gid.read_text().strip()).ipv4_mapped) for tree in sorted(folder.glob("*.sys"))
            if _is_served(tree.with_suffix(".sock")) for gid in tree.glob(GIDS)}


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(_LIBC, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _start(folder: Path, host: str, names: Mapping[str, str], note: TextIO) -> None:
    """Start the process that holds the namespace. It is not a child of this one, which may wait for its children."""
    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        if os.fork() == 0:
            _hold(folder, host, names, note, theirs)
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with open(ours) as pipe:
        if problem := pipe.read():
            raise OSError(problem)


def _hold(folder: Path, host: str, names: Mapping[str, str], note: TextIO, report: int) -> NoReturn:
    """Make the namespace, note this process in ``note``, and keep both until the daemon of the host ends."""
    try:
        _make(names, folder / "network.hosts")
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        daemon.connect(str(folder / f"{host}.sock"))
        os.setsid()
        note.truncate(0)
        note.write(str(os.getpid()))
        note.flush()
        null = os.open(os.devnull, os.O_RDWR)
        for file in range(3):
            os.dup2(null, file)
        for file in set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2, note.fileno(), daemon.fileno()}:
            with contextlib.suppress(OSError):
                os.close(file)      # `report`, too: the namespace is complete
        daemon.recv(1)
    except Exception as problem:
        os.write(report, str(problem).encode())
    finally:
        os._exit(0)


def _make(names: Mapping[str, str], hosts: Path) -> None:
    """Move this process to a new network with the addresses ``names``, by host. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", NEW_NETWORK | NEW_MOUNTS)
    except PermissionError:
        _call("unshare", NEW_USER | NEW_NETWORK | NEW_MOUNTS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh22x", b"lo", UP))
        for number, address in enumerate(names.values()):
            for request, value in ((SET_ADDRESS, address), (SET_MASK, "255.255.255.255")):
                fcntl.ioctl(any_socket, request, struct.pack("16sH2x4s16x", f"lo:{number}".encode(), socket.AF_INET,
                                                             socket.inet_aton(value)))
    hosts.write_text("".join(f"{address} {name}\n" for name, address in names.items()) + HOSTS.read_text())
    _call("mount", b"none", b"/", None, ctypes.c_ulong(REC | SLAVE), None)
    _call("mount", os.fsencode(hosts), os.fsencode(HOSTS), None, ctypes.c_ulong(BIND), None)


def _join(holder: int) -> None:
    """Move this process to the namespaces of the holder. Raises OSError."""
    here = os.getcwd()
    with contextlib.ExitStack() as files:
        spaces = {kind: files.enter_context(open(f"/proc/{holder}/ns/{kind}")) for kind in KINDS
                  if not os.path.samefile(f"/proc/{holder}/ns/{kind}", f"/proc/self/ns/{kind}")}
        for space in spaces.values():
            _call("setns", space.fileno(), 0)
    os.chdir(here)
