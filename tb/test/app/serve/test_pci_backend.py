"""Programs on PCI functions: they map their memory themselves. The functions are those of ``weft machine``."""

import contextlib
import errno
import itertools
import mmap
import os
import re
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.driver.ibverbs.messages import Opcode
from weft.driver.ibverbs.rings import ASYNC_EVENT
from weft.driver.pci.access import BUS_MASTER, COMMAND
from weft.driver.serve.client import Client
from weft.driver.serve.daemon import Daemon
from weft.driver.terms.enums import AccessFlag, EventType, ReregFlag, WCStatus
from weft.driver.terms.errors import InvalidValue, PyverbsRDMAError
from weft.driver.terms.program_mapping import MappingMethod
from weft.driver.vfio_user.messages import Region
from weft.hdl.contract import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.model.settings import fields
from weft.tb.app.serve.pci_backend import GONE, PciBackend
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.sources import ROOT
from weft.tb.test.app.machine.test_machine import running
from weft.tb.verify.linux.client import guest_device, memfd
from weft.tb.verify.programs.raw_client import PAGE, VA, RawClient, RawEnd, Rejected, address_of, own_memory

HOSTS = {"a": "0000:00:03.0", "b": "0000:00:04.0"}
DELAY_NS, ACK_TIMEOUT = 50_000_000, 18      # 1.1 s, on a loaded machine


class Program(RawEnd):
    """Program whose memory is in a file, which it maps for its card. ``client`` is that card's machine."""

    def __init__(self, daemon, host, client):
        self.client, self.file = client, memfd(2 * PAGE)
        super().__init__(daemon, host)

    def memory(self, pages, pd, access=15):
        mapping = mmap.mmap(self.file, pages * PAGE)
        own = own_memory()
        shared, _ = self.call(Opcode.SHARE, files=[own])
        os.close(own)
        assert shared.method == MappingMethod.VFIO
        self.shared = shared.handle
        _, (mapper,) = self.call(Opcode.MAPPER)
        os.close(mapper)
        keys = self.register(self.shared, address_of(mapping), pages * PAGE, pd, access)
        self.client.map(keys.dma, pages * PAGE, file=self.file)
        return mapping, keys


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Daemon of hosts a and b, the machine of each, and their devices."""
    folder = tmp_path_factory.mktemp("pci")
    with running(folder, "--preset", "test") as machine, contextlib.ExitStack() as ends:
        clients = {address: machine.client(host) for host, address in HOSTS.items()}
        for client in clients.values():
            ends.callback(client.close)
        backend = PciBackend(list(HOSTS), list(HOSTS.values()), delay_ns=DELAY_NS,
                             opener=lambda address: guest_device(clients[address]))
        sentences = []
        (folder / "hosts").mkdir()
        daemon = Daemon(backend, folder / "hosts", sentences.append)
        yield SimpleNamespace(daemon=daemon, backend=backend, sentences=sentences,
                              client=lambda host: clients[HOSTS[host]])
        daemon.close()
        backend.close()
        assert not sentences and not daemon.contained
        assert all(device._closed for device in backend.devices)


def foreign(backend):
    return [len(device._memory._foreign) for device in backend.devices]


def test_a_write_between_programs_and_their_ends(served):
    ends = {host: Program(served.daemon, host, served.client(host)) for host in "ab"}
    ends["a"].connect(ends["b"], timeout=ACK_TIMEOUT)
    ends["b"].connect(ends["a"], timeout=ACK_TIMEOUT)
    ends["a"].mapping[:] = bytes(range(256)) * 32
    ends["a"].write(ends["b"], length=2 * PAGE)
    assert ends["a"].completion().status == WCStatus.SUCCESS
    assert ends["b"].mapping[:] == ends["a"].mapping[:]
    assert foreign(served.backend) == [1, 1]

    # A region that moves gets other addresses, and the former ones are unmapped.
    one, other = ends["a"], mmap.mmap(ends["a"].file, 2 * PAGE)
    keys, _ = one.call(Opcode.REREG_MR, handle=one.keys.handle, flags=ReregFlag.CHANGE_TRANSLATION, pd=one.pd,
                       access=AccessFlag.LOCAL_WRITE, memory=one.shared, address=address_of(other), iova=VA,
                       length=2 * PAGE)
    assert keys.dma not in (0, one.keys.dma) and keys.lkey == one.keys.lkey
    one.client.map(keys.dma, 2 * PAGE, file=one.file)
    other[:4] = b"more"
    one.write(ends["b"], length=PAGE)
    assert one.completion().status == WCStatus.SUCCESS and ends["b"].mapping[:4] == b"more"
    assert foreign(served.backend) == [1, 1]
    for end in ends.values():
        end.close()
    while served.daemon.clients:
        served.daemon.turn()
    assert foreign(served.backend) == [0, 0]


def test_a_program_of_another_user_gets_neither_mapper_nor_memory(served, monkeypatch):
    monkeypatch.setattr(Client, "trusted", False)
    program = RawClient(served.daemon, "a").greet()
    for ask in (program.share, lambda: program.call(Opcode.MAPPER)):
        with pytest.raises(Rejected, match="those of this user may not") as refused:
            ask()
        assert refused.value.args[0] == errno.EACCES
    program.close()


@pytest.mark.parametrize(("user", "users", "trusted"), [
    (1234, {1234}, True), (1234, {1235}, False), (0, set(), True), (os.geteuid(), set(), True),
    ((1 << 32) - 2, {(1 << 32) - 2}, True)])
def test_users_that_may_map_memory(user, users, trusted):
    peer = SimpleNamespace(getsockopt=lambda *_: struct.pack("=iII", 77, user, 5))
    assert Client.trusted.fget(SimpleNamespace(socket=peer, users=users)) is trusted


def test_a_function_that_will_be_removed_is_fatal_for_its_host_alone(served):
    """The last test with these cards."""
    programs = [RawClient(served.daemon, "a").greet(), Program(served.daemon, "b", served.client("b"))]
    assert foreign(served.backend) == [0, 1]
    os.eventfd_write(served.backend.devices[1]._alarm, 1)
    while True:
        served.daemon.turn()
        with contextlib.suppress(BlockingIOError):
            event = ASYNC_EVENT.unpack(programs[1].events.recv(64))
            break
    assert event.event_type == EventType.DEVICE_FATAL
    assert served.backend.contexts[1].engine.fatal == GONE and served.backend.contexts[0].engine.fatal is None
    with pytest.raises(BlockingIOError):
        programs[0].events.recv(64)
    for program in programs:
        program.close()
    while served.daemon.clients:
        served.daemon.turn()
    # The memory is free, so the function, which is still there, may not reach memory any more.
    assert foreign(served.backend) == [0, 0]
    assert not int.from_bytes(served.client("b").read(Region.CONFIG, COMMAND, 2), "little") & BUS_MASTER
    neighbours = served.backend.contexts[1].engine.neighbours
    neighbours.want(0x0A00_0063, 0)
    assert neighbours.deadline is not None and served.backend.rest_s() > 0       # no timer of the card is waited for
    neighbours.forget()


def test_a_card_that_cannot_be_opened_is_a_sentence():
    def opener(address):
        raise PyverbsRDMAError(f"the PCI function {address} is not a card", errno.ENODEV)

    with pytest.raises(Failure, match=r"the card 0000:00:03.0 cannot be used: .* 0000:00:03.0 is not a card"):
        PciBackend(["a", "b"], HOSTS.values(), delay_ns=1000, opener=opener)


@pytest.mark.parametrize(("error", "sentence"), [
    (None, "magic"), (TimeoutError("the card does not come out of reset"), "come out of reset"),
    (OSError(errno.EIO, "Input/output error"), "Input/output error")])
def test_a_card_that_cannot_be_brought_up_is_a_sentence(error, sentence):
    """Its memory is still in use."""
    class Unusable(FunctionalDevice):
        def read32(self, offset):
            if error:
                raise error
            return 0

        def close(self):
            raise InvalidValue("12 ranges of memory are in use", errno.EBUSY)

    device = Unusable(EventLoop(), preset="test")
    with pytest.raises(Failure, match=f"the card 0000:00:03.0 cannot be used: .*{sentence}"):
        PciBackend(["a"], ["0000:00:03.0"], delay_ns=1000, opener=lambda _: device)
    backend = PciBackend([], [], delay_ns=1000)
    backend.devices.append(device)
    with pytest.raises(Failure, match="a card did not end as it should: 12 ranges of memory are in use"):
        backend.close()


def test_the_rule_and_the_unit_fit_the_card_and_the_command():
    rule, unit = ((ROOT / "examples/hardware" / name).read_text() for name in ("60-weft.rules", "weft.service"))
    assert set(re.findall(r"{vendor}==\"(\w+)\"", rule)) == {f"{abi.PCI_VENDOR_ID:#06x}"}
    assert set(re.findall(r"0x5746", rule)) == {f"{abi.PCI_DEVICE_ID:#06x}"}
    words = re.search("^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    given = {name.removeprefix("--"): value for name, value in itertools.pairwise(words) if name.startswith("--")}
    known = fields(Settings)
    settings = Settings(**{name: known[name].read(value) for name, value in given.items()})
    assert words[1] == "serve" and settings.socket(settings.hosts[0]) == Path("/run/weft/host.sock")


def test_one_device_is_one_host():
    device, = devices = ["0000:00:03.0"]
    assert Settings(backend="pci", device=devices).hosts == ("a",)
    assert Settings(backend="pci", device=[device, "0000:00:04.0"], delay_us=5).hosts == ("a", "b")
    assert Settings(backend="pci", device=devices, hosts=["server"]).hosts == ["server"]


@pytest.mark.parametrize(("options", "sentence"), [
    ({}, "backend is 'pci'; it needs --device"),
    ({"device": ["0000:00:03.0"], "hosts": ["c", "d"]}, "1 devices are as many hosts"),
    ({"device": ["0000:00:03.0"], "loss": 0.1}, "loss is 0.1; it needs simulated cards"),
    ({"device": ["0000:00:03.0"], "delay_us": 5, "capture": "here"}, "capture is 'here'; it needs simulated cards"),
    ({"device": ["0000:00:03.0"], "time": "sim"}, "time is 'sim'; it needs simulated cards"),
    ({"device": ["0000:00:03.0"], "preset": "test"}, "preset is 'test'; it needs simulated cards"),
    ({"backend": "direct", "device": ["0000:00:03.0"]}, "device is '0000:00:03.0'; it needs --backend pci"),
    ({"backend": None, "users": ["root"]}, "users is 'root'; it needs --backend pci"),
    ({"backend": "functional", "command_timeout_ms": 200.0}, "command_timeout_ms is 200.0; it needs --backend pci")])
def test_settings_that_do_not_fit(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(**{"backend": "pci", **options})
