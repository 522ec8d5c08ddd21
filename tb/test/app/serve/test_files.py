"""Test of the files that accompany answers: the library closes those of answers that it cannot use."""

import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest

from weft.driver.ibverbs.messages import ANSWER, FILES_MAX, MESSAGE_BYTES_MAX, MESSAGES, Opcode

CALLS = 50
# Opens the only device several times; prints how many descriptors that left.
PROGRAM = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
library.ibv_get_device_list.restype = ctypes.c_void_p
before = len(os.listdir("/proc/self/fd"))
for _ in range(int(sys.argv[2])):
    library.ibv_get_device_list(None)
print(len(os.listdir("/proc/self/fd")) - before)
"""
WELCOME = ANSWER.pack() + MESSAGES[Opcode.HELLO][1].pack()


@contextlib.contextmanager
def answering(path, answer, files):
    """Accept connections at ``path``, and answer each message with the same bytes and new files."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(8)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with connection, contextlib.suppress(ConnectionError):
                    while connection.recv(MESSAGE_BYTES_MAX):
                        given = [os.memfd_create("answer") for _ in range(files)]
                        socket.send_fds(connection, [answer], given)
                        for file in given:
                            os.close(file)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


@pytest.mark.parametrize("files", range(FILES_MAX + 1))
@pytest.mark.parametrize("answer", [ANSWER.pack(status=5) + b"no", WELCOME + b"more", WELCOME[:-1], WELCOME, b"x"],
                         ids=["error", "long", "short", "right", "no answer"])
def test_no_descriptor_is_left(library, tmp_path, answer, files):
    with answering(tmp_path / "socket", answer, files):
        done = subprocess.run([sys.executable, "-c", PROGRAM, library, str(CALLS)], capture_output=True, text=True,
                              timeout=60, env=dict(os.environ, WEFT_SOCKET=str(tmp_path / "socket")), check=True)
    assert int(done.stdout) <= 1, done.stderr
