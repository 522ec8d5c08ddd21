"""``weft devinfo`` and ``weft counters`` on PCI functions: cards of ``weft machine``, which vfio-user reaches."""

import re

import pytest

from weft.driver.verbs.context import Context
from weft.hdl.contract.params import preset
from weft.model.functional.host import FunctionalDevice
from weft.model.impairments import FrameKind
from weft.model.loop import EventLoop
from weft.tb.app.device import hardware, short_run
from weft.tb.app.device.short_run import KINDS
from weft.tb.app.machine.machine import Machine
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.app.stage.host import Host
from weft.tb.test.app.device.test_tools import views, weft
from weft.tb.test.app.machine.test_machine import served
from weft.tb.verify.linux.client import Client, guest_device

ADDRESSES = {"0000:03:00.0": "a", "0000:04:00.0": "b"}
ONE, BOTH = "0000:03:00.0", ",".join(ADDRESSES)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Two cards with a lossy link between them."""
    folder = tmp_path_factory.mktemp("cards")
    made = Machine(MachineSettings(folder=str(folder), preset="test", loss=0.1), print)
    with served(made):
        made.clients = {address: Client(folder / f"{host}.sock") for address, host in ADDRESSES.items()}
        yield made
        for client in made.clients.values():
            client.close()


@pytest.fixture
def cards(machine, monkeypatch):
    """The cards of the machine; after the test they reach no memory."""
    monkeypatch.setattr(hardware, "open_device", lambda address: guest_device(machine.clients[address]))
    yield machine
    assert not any(len(function.dma) for function in machine.functions.values())


def test_devinfo_shows_every_card(cards):
    resets = [function.counters["resets"] for function in cards.functions.values()]
    result = weft("devinfo", "-v", "--device", BOTH)
    assert result.exit_code == 0, result.output
    assert [function.counters["resets"] for function in cards.functions.values()] == [one + 2 for one in resets]
    found = [dict(re.findall(r"^\s*([\w\[\] ]+):\s+(.*)$", f"hca_id:{part}", re.MULTILINE))
             for part in result.stdout.split("hca_id:")[1:]]
    assert [one["hca_id"] for one in found] == ["weft0", "weft1"]
    assert [one["GID[  0]"].split(",")[0][-9:] for one in found] == ["0a00:0001", "0a00:0002"]
    assert {(one["state"], int(one["max_mr"])) for one in found} == {("PORT_ACTIVE (4)", preset("test").mrs)}


def test_two_cards_run_over_their_link(cards):
    links = cards.links.values()
    lost, again = (lambda: sum(link.counters.destroyed_data for link in links),
                   lambda: sum(link.counters.sent[FrameKind.RETX] for link in links))
    before = lost(), again()
    result = weft("counters", "--device", BOTH, "--messages", 30)
    assert result.exit_code == 0, result.output
    (_, a, card_a), (_, b, card_b) = views(result.stdout)
    assert a["tx_pkts"] + b["tx_pkts"] - a["rx_pkts"] - b["rx_pkts"] == lost() - before[0] > 0
    assert a["retrans_pkts"] + b["retrans_pkts"] == again() - before[1] >= lost() - before[0]
    assert card_a["tx_bytes"] > 30 * 2 * 8192 and card_b["tx_bytes"] > 30 * 8192      # writes and sends; reads


def test_a_card_alone_sends_to_itself(cards):
    result = weft("counters", "--device", ONE, "--messages", 300)
    assert result.exit_code == 0, result.output
    (device, _, card), = views(result.stdout)
    assert device == "weft0/1" and card["tx_raw_frames"] == 300 and card["rx_raw_frames"] == 0


def test_a_card_that_is_lost_during_the_run_is_a_sentence(cards, monkeypatch):
    opened, devices = hardware.open_device, []

    class Kinds:
        """Kinds of requests, before the first of which the card that sends them is lost."""

        def __iter__(self):
            devices[0]._lose()
            return iter(KINDS)

    def remembered(address):
        devices.append(opened(address))
        return devices[-1]

    monkeypatch.setattr(hardware, "open_device", remembered)
    monkeypatch.setattr(short_run, "KINDS", Kinds())
    result = weft("counters", "--device", BOTH)
    assert result.exit_code == 1 and result.stderr.count("\n") == 1
    assert result.stderr.endswith(f"run on {BOTH.replace(',', ', ')} failed: a request ended with FATAL_ERR\n")


@pytest.mark.parametrize(("words", "status", "sentence"), [
    (["devinfo", "--device", "x"], 2, "--device is 'x'; addresses of PCI functions are needed"),
    (["counters", "--device", f"{ONE},{ONE}"], 2, "--device"),
    (["counters", "--device", f"{BOTH},0000:05:00.0"], 2, "2 cards at most"),
    (["devinfo", "--device", ONE, "--preset", "full"], 2, "--preset is 'full'; it does not fit cards of this machine"),
    (["devinfo", "--device", ONE, "--backend", "model"], 2, "--backend"),
    (["counters", "--device", ONE, "--loss", "0.1"], 2, "--loss"),
    (["counters", "--device", ONE, "--report", __file__], 2, "--report"),
    (["devinfo", "--device", "ffff:00:1f.7"], 1, "the card ffff:00:1f.7 cannot be used: there is no PCI function"),
    (["counters", "--device", "ffff:00:1f.7"], 1, "the card ffff:00:1f.7 cannot be used: there is no PCI function")])
def test_what_does_not_fit_is_a_sentence(words, status, sentence):
    result = weft(*words)
    assert result.exit_code == status and result.stderr.startswith("weft: ") and result.stderr.count("\n") == 1
    assert sentence in result.stderr


def test_frames_return_from_a_loop():
    loop = EventLoop()
    device = FunctionalDevice(loop, preset="test")
    device.transmit = device.card.receive
    context = Context(device, mac=0x02_0000_0000_01, ip=0x0A00_0001)
    counted = short_run.alone(Host("a", context, print, 0), 5)
    context.close()
    assert counted["tx_raw_frames"] == counted["rx_raw_frames"] == counted["rx_frames"] == 5
