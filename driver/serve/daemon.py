"""Daemon of hosts with a card and a socket each, for any number of programs."""

import array
import contextlib
import errno
import functools
import os
import select
import socket
import time
from collections.abc import Callable, Sequence

from ..cm.card_agent import CardAgent
from ..device.health import DeviceFatal
from ..ibverbs.messages import (
    ANSWER,
    FILES_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGES,
    REQUEST,
    SENTENCE_BYTES_MAX,
    VERSION,
    Opcode,
)
from ..queue.command import CommandError, CommandTimeout
from ..terms.errors import OutOfResources, PyverbsRDMAError
from ..verbs.context import Context
from ..verbs.device_list import open_card
from . import calls, connection_calls
from .client import Client
from .process import Accesses, CopyWatch
from .quota import Account, of_this_process
from .ring import Ended, Violation
from .shared_memory import compiled, fence, reader, writer
from .sysfs import SysfsTree

ERRORS = ((MemoryError, errno.ENOMEM), (NotImplementedError, errno.EOPNOTSUPP), (TimeoutError, errno.ETIMEDOUT),
          (CommandTimeout, errno.EIO), (CommandError, errno.EIO), (DeviceFatal, errno.EIO), (ValueError, errno.EINVAL),
          (TypeError, errno.EINVAL), (OSError, errno.ENOMEM))     # last entry: no mapping or descriptor is left
CALLS = calls.CALLS | connection_calls.CALLS
CALLS_NS = 1_000_000     # longest time in which calls delay other work
PAUSE_NS = 30_000        # longest pause between two calls of a program that makes one after the other
_TAKING = frozenset({Opcode.RESIZE_CQ, Opcode.MODIFY_SRQ, Opcode.MODIFY_QP})     # calls that take posted requests
_OK = ANSWER.pack()
_READERS = {opcode: reader(asked) for opcode, (asked, _) in MESSAGES.items()}
_WRITERS = {opcode: writer(answered) for opcode, (_, answered) in MESSAGES.items()}
_HEAD = compiled(REQUEST)
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)     # flags of a message that is not complete
_ANCILLARY_BYTES = socket.CMSG_SPACE(FILES_MAX * array.array("i").itemsize)


class ServeBackend:
    """Base class of the back ends that the daemon serves.

    Attributes
    ----------
    hosts
        Name of the device (see :func:`~weft.driver.verbs.device_list.add_device`) by name of the host.
    files
        Descriptors that wake up the daemon.
    users
        See :class:`~weft.driver.serve.client.Client`.
    failed
        See :meth:`work`.
    """

    hosts: dict[str, str]
    users: frozenset[int] = frozenset()
    files: Sequence[int] = ()
    failed: Callable[[Context, Exception], object] = staticmethod(lambda context, problem: None)

    def work(self, context: Context) -> bool:
        """Let the driver of a host work; return true if something happened.

        An exception that does not belong to a program makes the host's card fail: its programs get DEVICE_FATAL, and
        the other hosts continue. ``failed(context, exception)`` reports it.
        """
        try:
            return context.progress()
        except Exception as problem:
            context.engine.fail(f"the driver met an unexpected {problem!r}")
            self.failed(context, problem)
            return True

    def statistics(self, host: str) -> dict[str, int]:
        """Return the counters of a host: those of its card, and the counts of its driver, by name."""
        card = open_card(self.hosts[host])
        return {**card.statistics(), **card.engine.counts}

    def progress(self) -> bool:
        """Advance drivers, cards and time for a moment; return true if something happened, or soon will."""
        raise NotImplementedError

    def copying(self) -> tuple[int, Client] | None:
        """Return number and client of an access to a program's memory that takes place in another thread, or None."""
        return None

    def client(self, connection: socket.socket, name: str, whole: Account) -> Client:
        """Return the :class:`~weft.driver.serve.client.Client` of a program that connected."""
        return Client(connection, name, whole)

    def rest_s(self) -> float | None:
        """Return the seconds until something is due without external input, or None."""
        raise NotImplementedError


class Daemon:
    """Server of the programs on the hosts of a back end.

    Parameters
    ----------
    backend : ServeBackend
    folder : path
        Folder for a socket ``NAME.sock`` and the files ``NAME.sys`` of each host.
    report : callable(sentence)
        Function for messages to the operator.
    most : dict of ResourceKind to int, optional
        Quota of all programs together; default :func:`~weft.driver.serve.quota.of_this_process`.

    Attributes
    ----------
    clients : dict of int to Client
        By descriptor of their socket.
    contained : int
        Unexpected exceptions, each of which ended the connection of one program, or failed one card.
    account : Account
        Resources of all clients.
    """

    def __init__(self, backend, folder, report=lambda sentence: None, most=None):
        self.backend, self.report, backend.failed = backend, report, self._card_failed
        self.account = Account(of_this_process() if most is None else most)
        self.clients, self._listeners, self._watched, self.contained = {}, {}, {}, 0
        self._accesses = Accesses()
        self._poll = select.epoll()
        self.paths, self._sysfs = {}, {}
        self._called = False      # calls were answered since the last round
        for file in backend.files:
            self._poll.register(file, select.EPOLLIN)
        for host in backend.hosts:
            self.paths[host] = os.path.join(folder, f"{host}.sock")
            self._sysfs[host] = SysfsTree(os.path.join(folder, f"{host}.sys"), host, open_card(backend.hosts[host]),
                                          functools.partial(backend.statistics, host))
            self._listen(host, self.paths[host])
        self._copies = CopyWatch(lambda: backend.copying() or self._accesses.current, report)

    def _listen(self, host, path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(path)
        listener.listen(64)
        listener.setblocking(False)
        self._listeners[listener.fileno()] = listener, host
        self._poll.register(listener.fileno(), select.EPOLLIN)

    def watch(self, file, function):
        """Call ``function()`` whenever the descriptor ``file`` is readable."""
        self._watched[file] = function
        self._poll.register(file, select.EPOLLIN)

    # ---------------------------------------------------------------------------------------- turns

    def turn(self):
        """Do one round: calls, posted work, the back end, reports. Sleep if there is nothing to do."""
        busy = self._calls(0)
        if self._called:
            self._further_calls()
        self._install()
        for client in list(self.clients.values()):
            busy |= self._with(client, client.take_work)
        busy |= self.backend.progress()
        for client in list(self.clients.values()):
            self._with(client, client.notify)
        if not busy:
            self._sleep()

    def _install(self):
        """Pass new regions to the cards, before requests are taken that may be for them."""
        for client in [client for client in self.clients.values() if client.new_regions]:
            self._with(client, client.install)

    def _with(self, client, method, *arguments):
        """Call ``method(*arguments)`` for a client. An exception ends the connection of that client alone."""
        try:
            return bool(method(*arguments))
        except Ended:
            self.drop(client)
        except Violation as violation:
            self.drop(client, f"was dropped: {violation}")
        except ConnectionError:      # the program ended meanwhile
            self.drop(client)
        except Exception as problem:
            self.contained += 1
            self.drop(client, f"was dropped: the daemon met an unexpected {problem!r}")
        return True

    def _card_failed(self, context, problem):
        self.contained += 1
        self.report(f"the card of {context.name} failed: the daemon met an unexpected {problem!r}")

    def _sleep(self):
        clients = list(self.clients.values())
        for client in clients:
            client.fall_asleep()
        fence()
        if not any(client.has_work for client in clients):
            self._calls(self.backend.rest_s())
        for client in clients:
            if client.socket.fileno() in self.clients:
                client.wake_up()

    def _calls(self, timeout_s):
        """Wait up to ``timeout_s`` (None: without limit) for calls, and answer all; return true if there was one."""
        ready = self._poll.poll(timeout_s)
        for file, _ in ready:
            if file in self._listeners:
                self._accept(*self._listeners[file])
            elif file in self._watched:
                self._watched[file]()
            elif file in self.clients:
                self._called = True
                self._serve(self.clients[file])
        return bool(ready)

    # ------------------------------------------------------------------------------------- programs

    def _accept(self, listener, host):
        for name in self.backend.hosts.values():
            CardAgent.of(open_card(name))      # so that a host without programs rejects connections
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection = listener.accept()[0]
            connection.setblocking(False)
            try:
                client = self.backend.client(connection, self.backend.hosts[host], self.account)
            except (OutOfResources, OSError) as problem:
                connection.close()
                self.report(f"a program on {host} was turned away: {problem}")
                return
            client.sysfs, client.users, client.accesses = self._sysfs[host], self.backend.users, self._accesses
            self.clients[connection.fileno()] = client
            self._poll.register(connection.fileno(), select.EPOLLIN)
            for file in client.doorbells:
                self._poll.register(file, select.EPOLLIN)

    def drop(self, client, why=None):
        """Stop serving a client, and free its resources."""
        if self.clients.pop(client.socket.fileno(), None) is None:
            return
        if why:
            self.report(f"a program on {client.name} {why}")
        self._poll.unregister(client.socket.fileno())
        for file in client.doorbells:
            self._poll.unregister(file)
        try:
            client.close()
        except Exception as problem:
            self.contained += 1
            self.report(f"resources of a program on {client.name} were not freed: {problem!r}")

    def _further_calls(self):
        """Answer the calls that follow shortly, such as registrations, before the round that any call costs."""
        now = time.monotonic_ns()
        end, soon = now + CALLS_NS, now + PAUSE_NS
        while now < min(end, soon):
            if self._calls(0):
                soon = time.monotonic_ns() + PAUSE_NS
            else:
                os.sched_yield()
            now = time.monotonic_ns()
        self._called = False

    def _serve(self, client):
        """Answer a call of a client."""
        self._with(client, self._exchange, client)

    def _exchange(self, client):
        try:
            data, ancillary, flags, _ = client.socket.recvmsg(MESSAGE_BYTES_MAX, _ANCILLARY_BYTES,
                                                              socket.MSG_CMSG_CLOEXEC)
            files = _files_of(ancillary) if ancillary else []
        except BlockingIOError:
            return
        except ConnectionError:
            data, files, flags = b"", [], 0
        try:
            if not data:
                self.drop(client)
                return
            answer, out = self._answer(client, data, files, flags)
            if out:
                files = [*files, *out]
                socket.send_fds(client.socket, [answer], out)
            else:
                client.socket.send(answer)
        except BlockingIOError:
            raise Violation("it takes no answers") from None
        finally:
            for file in files:
                os.close(file)

    def _answer(self, client, data, files, flags):
        """Return the answer to a call, and its files.

        Raises
        ------
        Violation
        """
        if len(data) < REQUEST.size_bytes or flags & _CUT:
            raise Violation(f"a message of {len(data)} bytes")
        version, opcode = _HEAD.unpack_from(data)
        if version != VERSION:
            return _refusal(errno.EPROTO, f"the program speaks version {version}, the daemon {VERSION}: both have "
                            "to be of one build"), []
        if opcode not in MESSAGES:
            raise Violation(f"opcode {opcode}")
        asked, _answered = MESSAGES[opcode]
        if opcode in _TAKING:
            self._install()
            if client.socket.fileno() not in self.clients:
                raise Ended("it was dropped")
        body = data[REQUEST.size_bytes:]
        if len(body) < asked.size_bytes:
            raise Violation(f"{len(body)} bytes for {Opcode(opcode).name}")
        try:
            values, out = CALLS[opcode](client, _READERS[opcode](body), body[asked.size_bytes:], files)
        except PyverbsRDMAError as problem:
            return _refusal(abs(problem.error_code) if problem.error_code != -1 else errno.EINVAL, problem), []
        except tuple(kind for kind, _ in ERRORS) as problem:
            return _refusal(next(code for kind, code in ERRORS if isinstance(problem, kind)), problem), []
        return _OK + _WRITERS[opcode](values), out

    def close(self):
        """Drop all programs."""
        for client in list(self.clients.values()):
            self.drop(client)
        for listener, host in self._listeners.values():
            listener.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.paths[host])
            self._sysfs[host].close()
        self._copies.close()
        self._poll.close()


def _files_of(ancillary):
    """Return the descriptors in the ancillary data of a message."""
    files = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return list(files)


def _refusal(status, problem):
    return ANSWER.pack(status=status) + str(problem).encode()[:SENTENCE_BYTES_MAX]
