"""Tests of the files below ``/sys/class`` that programs look at."""

import os
import select
import signal
import subprocess
import sys
import time
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from weft.driver.ibverbs.build import compiler
from weft.driver.ibverbs.messages import Opcode
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.linux_counters import CARD, DRIVER, PORT
from weft.hdl.contract import abi
from weft.tb.app.serve.environment import environment_of
from weft.tb.verify.programs.hostile import pair
from weft.tb.verify.programs.local import PolledBackend, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, RawClient, RawEnd

DEVICE = "/sys/class/infiniband/weft0"
COUNTER = f"{DEVICE}/ports/1/counters/port_xmit_data"
OF_SENDER = ("packet_seq_err", "local_ack_timeout_err", "retrans_pkts")
LIMIT_S = 60
PAGES, WRITES_MAX, TURNS_MAX = 8, 500, 200
# Finds the file of a counter, closes all descriptors and opens others, then reads the counter. Prints it, and the size
# of the largest other file, which is empty.
DAEMON = """
import os, sys
os.stat(sys.argv[1])
os.closerange(3, 100)
files = [os.memfd_create("other") for _ in range(20)]
print(open(sys.argv[1]).read().strip(), max(os.fstat(file).st_size for file in files))
"""
# Reads a counter. After a line it lets a child read it, which is killed after the next line; then it reads it twice.
CHILD = """
import os, signal, sys
print(open(sys.argv[1]).read().strip(), flush=True)
sys.stdin.readline()
if not (child := os.fork()):
    open(sys.argv[1]).read()
    os._exit(0)
sys.stdin.readline()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(open(sys.argv[1]).read().strip(), flush=True)
print(open(sys.argv[1]).read().strip(), flush=True)
"""
LIBRARY = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
text = ctypes.create_string_buffer(64)
for name, size in (("node_type", 64), ("board_id", 64), ("node_type", 3), ("none", 64)):
    print(library.ibv_read_sysfs_file(sys.argv[2].encode(), name.encode(), text, size), text.value.decode())
"""


@pytest.fixture
def daemon():
    with local_daemon() as (daemon, _):
        yield daemon


def tree(daemon, host):
    return Path(daemon.paths[host]).with_suffix(".sys") / "class"


def read(daemon, host, name):
    return (tree(daemon, host) / "infiniband/weft0" / name).read_text()


def counters(daemon, host, folder):
    """Return the counters in a folder of the port by name."""
    RawClient(daemon, host).call(Opcode.UPDATE_COUNTERS)
    files = (tree(daemon, host) / "infiniband/weft0/ports/1" / folder).iterdir()
    return {file.name: int(file.read_text()) for file in files}


def run(daemon, host, *command):
    """Return the output of a program on a host, or without the daemon if ``host`` is None."""
    environment = environment_of(daemon.paths[host] if host else "/nonexistent/a.sock")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=environment, text=True)
    while process.poll() is None:
        daemon.turn()
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return output


def test_files_describe_the_card(daemon):
    for host in "ab":
        welcome = RawClient(daemon, host).greet().welcome
        assert int(read(daemon, host, "node_guid").replace(":", ""), 16) == welcome.node_guid
        assert IPv6Address(read(daemon, host, "ports/1/gids/0").strip()).packed == welcome.gid.to_bytes(16, "little")
        assert read(daemon, host, "node_desc") == f"{host} weft0\n"
    assert {name: read(daemon, "a", name) for name in (
        "node_type", "fw_ver", "ports/1/state", "ports/1/phys_state", "ports/1/rate", "ports/1/link_layer",
        "ports/1/pkeys/0", "ports/1/gid_attrs/types/0", "ports/1/gid_attrs/ndevs/0", "device/vendor")} == {
        "node_type": "1: CA\n", "fw_ver": ".".join(map(str, abi.VERSION)) + "\n", "ports/1/state": "4: ACTIVE\n",
        "ports/1/phys_state": "5: LinkUp\n", "ports/1/rate": "100 Gb/sec (4X EDR)\n",
        "ports/1/link_layer": "Ethernet\n", "ports/1/pkeys/0": "0xffff\n", "ports/1/gid_attrs/types/0": "RoCE v2\n",
        "ports/1/gid_attrs/ndevs/0": "weft0\n", "device/vendor": f"{abi.PCI_VENDOR_ID:#06x}\n"}
    assert (tree(daemon, "a") / "infiniband_verbs/uverbs0/ibdev").read_text() == "weft0\n"


def test_files_end_with_the_daemon():
    with local_daemon() as (daemon, _):
        folders = [tree(daemon, host).parent for host in "ab"]
        assert all(folder.is_dir() for folder in folders)
        daemon.close()
        assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("served", [True, False])
def test_every_function_that_takes_a_path_finds_the_device_of_a_served_program_only(library, daemon, tmp_path, served):
    program = tmp_path / "calls"
    subprocess.run([compiler(), "-O2", "-Wall", "-Wextra", "-Werror", "-o", program,
                    Path(__file__).with_name("sysfs_calls.c")], check=True)
    found = dict(line.rsplit(" ", 1) for line in run(daemon, "a" if served else None, program).splitlines())
    assert len(found) > 40
    assert {name for name, yes in found.items() if (yes == "yes") != served} == set()


@pytest.mark.parametrize("command", [
    ["cat", COUNTER], ["sh", "-c", f"cd {DEVICE}/ports/1/counters && cat port_xmit_data"],
    ["sh", "-c", f"cat {DEVICE.replace('weft0', '*')}/ports/*/counters/port_xmit_data"],
    ["sh", "-c", f"cd / && cat {COUNTER[1:]}"], [sys.executable, "-c", DAEMON, COUNTER]],
    ids=["path", "folder", "pattern", "relative path", "all files closed"])
def test_counter_is_current_when_its_file_is_opened(library, daemon, command):
    one, other = pair(daemon)
    before = int(run(daemon, "a", *command).split()[0])
    for _ in range(PAGES):
        one.write(other)
    one.completed(PAGES)
    after, *rest = map(int, run(daemon, "a", *command).split())
    assert after - before >= PAGES * PAGE // 4 and not any(rest)


@pytest.mark.parametrize("answered", [False, True], ids=["before the answer", "with an answer that no thread took"])
def test_a_child_that_is_killed_during_a_call_does_not_block_its_parent(library, daemon, answered):
    """They share a connection. The daemon does nothing until the child's call is there."""
    program = subprocess.Popen([sys.executable, "-c", CHILD, COUNTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=environment_of(daemon.paths["a"]), text=True)
    try:
        while not select.select([program.stdout], [], [], 0)[0]:
            daemon.turn()
        assert program.stdout.readline() == "0\n"
        (client,) = daemon.clients.values()
        program.stdin.write("\n")
        program.stdin.flush()
        assert select.select([client.socket], [], [], LIMIT_S)[0], "the child makes no call"
        child = os.pidfd_open(_child_of(program.pid))
        if answered:
            signal.pidfd_send_signal(child, signal.SIGSTOP)
            daemon.turn()
        program.stdin.write("\n")
        program.stdin.flush()
        assert select.select([child], [], [], LIMIT_S)[0], "the child is not killed"
        os.close(child)
        end = time.monotonic() + LIMIT_S
        while program.poll() is None and time.monotonic() < end:
            daemon.turn()
        assert program.poll() == 0 and program.communicate()[0] == "0\n0\n"
    finally:
        program.kill()
        program.communicate()


def _child_of(number):
    return int(Path(f"/proc/{number}/task/{number}/children").read_text())


def test_counters_are_those_of_card_and_driver():
    with local_daemon(loss=0.2) as (daemon, _):
        one, other = (RawEnd(daemon, host) for host in "ab")
        for end, peer in ((one, other), (other, one)):
            end.connect(peer, retry_cnt=7)
        for _ in range(WRITES_MAX):
            one.write(other)
            assert one.completion().status == WCStatus.SUCCESS
            sender = counters(daemon, "a", "hw_counters")
            if counters(daemon, "b", "hw_counters")["out_of_sequence"] and all(map(sender.get, OF_SENDER)):
                break
        else:
            raise AssertionError(f"some events were not counted: {sender}")
        for host in "ab":
            counted = daemon.backend.statistics(host)
            port, hardware = counters(daemon, host, "counters"), counters(daemon, host, "hw_counters")
            assert set(port) == set(PORT) and set(hardware) == {*CARD, *DRIVER}
            assert port["port_xmit_data"] == counted["tx_bytes"] // 4
            assert port["port_rcv_packets"] == counted["rx_frames"]
            assert hardware["out_of_sequence"] == counted["holes"]


@pytest.mark.parametrize("opcode", [WROpcode.RDMA_WRITE, WROpcode.RDMA_READ])
def test_messages_of_the_direct_back_end_are_counted(opcode):
    with local_daemon(backend_type=PolledBackend) as (daemon, _):
        one, other = pair(daemon)
        before = [counters(daemon, host, "counters") for host in "ab"]
        for _ in range(3):
            one.write(other, opcode=opcode)
            assert one.completion().status == WCStatus.SUCCESS
        source, sink = [{name: value - was[name] for name, value in counters(daemon, host, "counters").items()}
                        for host, was in zip("ab", before, strict=True)][::1 if opcode is WROpcode.RDMA_WRITE else -1]
        assert source["port_xmit_packets"] == sink["port_rcv_packets"] == 3
        assert source["port_xmit_data"] == sink["port_rcv_data"] == 3 * PAGE // 4
        assert not source["port_rcv_data"] and not sink["port_xmit_data"]


def test_messages_without_a_receive_are_counted(daemon):
    one, other = pair(daemon)
    one.write(other, opcode=WROpcode.SEND)
    for _ in range(TURNS_MAX):
        daemon.turn()
        if counters(daemon, "a", "hw_counters")["rnr_nak_retry_err"]:
            break
    else:
        raise AssertionError("no RNR NAK was counted")
    assert counters(daemon, "b", "hw_counters")["rnr_nak_retry_err"] == 0


def test_library_reads_the_files_of_the_device(library, daemon):
    output = run(daemon, "a", sys.executable, "-c", LIBRARY, str(library), DEVICE)
    assert output.splitlines()[:2] == ["5 1: CA", "4 WEFT"]
    assert [line.split()[0] for line in output.splitlines()[2:]] == ["-1", "-1"]


@pytest.mark.parametrize(("path", "text"), [
    ("_verbs/abi_version", "6"), ("_verbs/uverbs0/ibdev", "weft0"), ("_mad/abi_version", "5")])
def test_other_classes_of_rdma_devices_are_there(library, daemon, path, text):
    assert run(daemon, "a", "cat", f"/sys/class/infiniband{path}") == f"{text}\n"


@pytest.mark.parametrize("command", [["ls", "/sys/class"], ["cat", "/sys/class/net/lo/address"], ["realpath", "/sys"]])
def test_other_files_are_those_of_the_machine(library, daemon, command):
    assert run(daemon, "a", *command) == subprocess.run(command, capture_output=True, text=True, check=True).stdout
