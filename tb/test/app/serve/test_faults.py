"""Tests of the faults of a daemon without programs: commands, schedules, seeds, limits, socket of `weft link`."""

import json
import os
import re
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.driver.serve.control import REQUEST_BYTES_MAX, Control
from weft.hdl.contract import wire
from weft.model.link import Link
from weft.model.loop import EventLoop
from weft.model.settings import BadSetting, BadSettings
from weft.tb.app.serve import faults as module
from weft.tb.app.serve.commands import ask, given, schedule_of
from weft.tb.app.serve.faults import RULES_MAX, Faults
from weft.tb.app.serve.functional import MAC
from weft.tb.app.serve.settings import REORDER_FRAMES, LinkSettings, Settings
from weft.tb.sim.flow.failure import Failure
from weft.tb.test.model.test_impairments import data, psn_of, roce

HOSTS = "abc"


class Links:
    """Back end without cards; ``arrived`` has the PSNs that passed, by host that sends."""

    fabric = None

    def __init__(self, settings):
        self.seed, self.loop = settings.seed, EventLoop()
        self.arrived = {host: [] for host in settings.hosts}
        self.links = {host: Link(self.loop, lambda frame, host=host: self.arrived[host].append(psn_of(frame)),
                                 seed=f"{settings.seed}/{n}") for n, host in enumerate(settings.hosts)}

    def summary(self):
        return iter(["summary"])

    def send(self, host, frames):
        for frame in frames:
            self.links[host].send(frame)
            self.loop.run(self.loop.now_ns + 1000)


def made(toml="", **options):
    """Return faults, their links, and the list of reported sentences."""
    settings, said = Settings(**{"hosts": HOSTS, "time": "sim", "delay_us": 0, "faults": toml} | options), []
    links = Links(settings)
    return Faults(links, settings, said.append), links, said


def obey(target, do, **settings):
    return target.obey({"do": do, **settings})


def passed(links, host="a", count=10, opcode=wire.Opcode.WRITE_ONLY):
    links.arrived[host].clear()
    links.send(host, (roce(opcode, psn) for psn in range(count)))
    return links.arrived[host]


def test_options_become_the_configuration_of_each_link():
    options = {"loss": 0.25, "duplicate": 0.5, "reorder": 0.125, "corrupt": 0.75, "rate_gbps": 3, "jitter_us": 7}
    _, links, _ = made(**options, delay_us=2)
    for link in links.links.values():
        config = link.impairments.config
        assert (config.delay_ns, config.jitter_ns, config.rate_gbps) == (2000, 7000, 3)
        assert (config.loss, config.duplicate, config.reorder, config.corrupt) == (0.25, 0.5, 0.125, 0.75)
        assert config.reorder_distance == REORDER_FRAMES and config.loss_model is None
    config = Settings(loss=0.1, burst=8).config()
    assert (config.loss, config.loss_model.loss, config.loss_model.mean_burst) == (0, 0.1, 8)
    assert Settings(loss=1, burst=8).config().loss == 1 and Settings(rate_gbps=0).config().rate_gbps is None


def test_settings_name_the_options_that_concern_packets():
    assert Settings().needs_packets is None and Settings(loss=0).needs_packets is None
    for options in ({"loss": 0.1}, {"jitter_us": 1}, {"faults": "seed = 1"}, {"capture": "x"}, {"link": "udp:h:1"},
                    {"time": "sim"}):
        assert Settings(**options).needs_packets in options


def test_a_direction_is_cut_and_restored():
    faults, links, _ = made()
    obey(faults, "cut", source="b")
    assert passed(links, "a") == list(range(10)) and passed(links, "b") == []
    assert "host b: its link is cut" in obey(faults, "show")["sentences"]
    obey(faults, "cut")
    assert passed(links, "a") == passed(links, "c") == []
    obey(faults, "restore", source="a")
    assert passed(links, "a") == list(range(10)) and passed(links, "b") == []
    obey(faults, "restore")
    assert passed(links, "b") == list(range(10))
    assert links.links["b"].counters.lost.total() == 20


def test_a_change_of_one_direction_keeps_other_values_and_a_cut():
    faults, links, _ = made(duplicate=0.5)
    obey(faults, "set", source="a", loss=1)
    assert passed(links, "a") == [] and len(passed(links, "b", 100)) > 110
    obey(faults, "cut", source="a")
    obey(faults, "set", loss=0, duplicate=1)
    assert passed(links, "a") == [] and len(passed(links, "b")) == 20
    obey(faults, "restore")
    assert len(passed(links, "a")) == 20
    state = obey(faults, "show")["state"]["hosts"]["a"]
    assert state["settings"] == {"loss": 0, "duplicate": 1, "delay_us": 0} and state["cut"] is False
    assert state["counters"]["sent"]["all"] == 30


def test_bursts_continue_when_another_setting_changes():
    _, links, _ = made(loss=0.3, burst=20)
    whole = passed(links, "a", 400)
    faults, links, _ = made(loss=0.3, burst=20)
    passed(links, "a", 200)
    obey(faults, "set", jitter_us=0)
    links.send("a", map(data, range(200, 400)))
    assert links.arrived["a"] == whole and 0 < len(whole) < 400


def test_rules_of_a_source_and_a_destination():
    faults, links, _ = made()
    assert obey(faults, "rule", source="a", destination="b", nth=2)["sentences"] == ["rule 1"]
    obey(faults, "rule", source="c", opcode="ACKNOWLEDGE", every=2)
    to_b = bytearray(data(0))
    to_b[:6] = (MAC + 1).to_bytes(6)
    links.send("a", [bytes(to_b)] * 3 + [data(9)] * 2)
    links.send("b", [bytes(to_b)] * 3)
    assert (links.arrived["a"], links.arrived["b"]) == ([0, 0, 9, 9], [0, 0, 0])
    assert passed(links, "c", 4, wire.Opcode.ACKNOWLEDGE) == [0, 2]
    shown = obey(faults, "show")
    assert shown["state"]["rules"] == [
        {"number": 1, "action": "drop", "source": "a", "destination": "b", "nth": 2, "matched": 3, "faults": 1},
        {"number": 2, "action": "drop", "source": "c", "opcode": "ACKNOWLEDGE", "every": 2, "matched": 4,
         "faults": 2}]
    assert shown["sentences"][0] == "summary"
    assert ("rule 1 (action drop, source a, destination b, nth 2): 3 packets matched, 1 hit") in shown["sentences"]


def test_rules_are_removed_one_by_one_or_with_everything():
    faults, links, _ = made(duplicate=1)
    obey(faults, "rule", psn=1)
    obey(faults, "rule", psn=2)
    obey(faults, "clear", rule=1)
    assert passed(links, count=4) == [0, 0, 1, 1, 3, 3]
    obey(faults, "set", duplicate=0, source="a")
    obey(faults, "cut")
    obey(faults, "clear")
    assert passed(links, count=3) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(BadSetting, match="no rule in force"):
        obey(faults, "clear", rule=2)
    assert obey(faults, "rule")["sentences"] == ["rule 1"]


def test_a_cleared_link_repeats_its_faults_by_seed():
    faults, links, _ = made(loss=0.3, seed="x")
    rule = {"source": "a", "chance": 0.3, "action": "duplicate"}
    obey(faults, "rule", **rule)
    first = list(passed(links, "a", 200))
    obey(faults, "clear")
    obey(faults, "rule", **rule)
    assert passed(links, "a", 200) == first
    obey(faults, "clear", seed="y")
    obey(faults, "rule", **rule)
    assert passed(links, "a", 200) != first and links.seed == "y"
    again, others, _ = made(loss=0.3, seed="y")
    obey(again, "rule", **rule)
    assert passed(others, "a", 200) == links.arrived["a"]


def test_steps_are_due_by_frames_and_by_time_since_the_first_frame():
    faults, links, said = made("""
        [[step]]
        do = "rule"
        psn = 0
        [[step]]
        frames = 6
        do = "restore"
        [[step]]
        frames = 3
        do = "cut"
        source = "a"
        [[step]]
        at_ms = 0.0075
        do = "set"
        loss = 1
        """)
    links.loop.run(1_000_000)       # a long silence: the schedule begins with the first frame
    assert passed(links) == [1, 2, 6, 7]
    assert [sentence.split(":")[1].strip() for sentence in said] == [
        "rule psn 0", "cut source a", "restore", "set loss 1"]
    assert obey(faults, "show")["sentences"][-1] == "schedule: 4 of 4 steps done"


def test_the_schedule_of_the_page_runs():
    page = Path(__file__).resolve().parents[4].joinpath("docs/faults.md").read_text()
    [schedule] = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    _, links, said = made(schedule)
    assert passed(links, "b", 5, wire.Opcode.ACKNOWLEDGE) == [0, 1, 3, 4]
    passed(links, "a", 2000)
    assert len(said) == 2 and links.links["a"].impairments.config.loss_model.loss == 0.02


def test_functional_cards_in_wall_clock_time_follow_wall_clock_time(monkeypatch):
    now = [5_000_000_000]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: now[0]))
    _, links, _ = made('[[step]]\nat_ms = 2\ndo = "cut"', time="wall")
    assert passed(links, count=4) == [0, 1, 2, 3]
    now[0] += 1_999_999
    assert passed(links, count=1) == [0]
    now[0] += 1
    assert passed(links, count=4) == []


def test_a_schedule_at_run_time_replaces_the_present_one_and_may_have_a_seed():
    faults, links, _ = made('[[step]]\nframes = 12\ndo = "cut"', loss=0.3)
    passed(links, count=10)
    obey(faults, "schedule", faults='seed = "z"\n[[step]]\nframes = 5\ndo = "set"\nloss = 0')
    mixed = list(passed(links, count=30))
    assert mixed[-25:] == list(range(5, 30)) and obey(faults, "show")["state"]["steps"] == {"done": 1, "all": 1}
    obey(faults, "clear")
    other, others, _ = made('[[step]]\nframes = 5\ndo = "set"\nloss = 0', loss=0.3, seed="z")
    assert passed(others, count=30) == mixed and schedule_of("seed = 4", HOSTS) == ("4", [])


def test_a_cleared_schedule_has_no_further_steps():
    faults, links, _ = made('[[step]]\nframes = 2\ndo = "cut"')
    obey(faults, "clear")
    assert len(passed(links)) == 10


def test_the_number_of_rules_is_bounded():
    faults, links, said = made("\n".join(['[[step]]\ndo = "rule"\npsn = 3'] * RULES_MAX))
    with pytest.raises(BadSettings, match=f"{RULES_MAX} rules"):
        obey(faults, "rule")
    obey(faults, "schedule", faults='[[step]]\ndo = "rule"')
    assert "had no effect" in said[-1] and passed(links, count=4) == [0, 1, 2]


@pytest.mark.parametrize("table", [
    None, [], 5, {}, {"do": ["cut"]}, {"do": "sever"}, {"do": "cut", "source": 3}, {"do": "cut", "source": []},
    {"do": "set", "loss": "x"}, {"do": "set", "loss": 10**400}, {"do": "set", "loss": True}, {"do": "show", "x": 1},
    {"do": "rule", "opcode": {}}, {"do": "rule", "qp": 1.5}, {"do": "clear", "rule": 1, "seed": "x"},
    {"do": "schedule", "faults": 7}, {"do": "schedule", "faults": f"seed = 1{'0' * 5000}"},
    {"do": "schedule", "faults": "["}, {"do": "rule", "destination": "zz"}])
def test_impossible_commands_change_nothing(table):
    faults, links, _ = made()
    before = obey(faults, "show")
    with pytest.raises(BadSettings):
        faults.obey(table)
    assert obey(faults, "show") == before and len(passed(links)) == 10


# ------------------------------------------------------------------------------------------------ socket


class Served:
    """Thread that answers commands as the daemon does."""

    def __init__(self, path, act):
        self.control, self._ended = Control(path, act), False
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._ended:
            self.control.serve()
            time.sleep(0.001)

    def __enter__(self):
        self._thread.start()
        return self.control

    def __exit__(self, *_):
        self._ended = True
        self._thread.join()
        self.control.close()


def test_commands_and_refusals_pass_the_socket(tmp_path):
    faults, links, _ = made()
    with Served(tmp_path / "a.link", faults.answer):
        ask(tmp_path, {"do": "set", "loss": 1, "source": "a"})
        assert passed(links) == []
        state = ask(tmp_path, {"do": "show"})["state"]
        assert state == json.loads(json.dumps(obey(faults, "show")["state"]))
        with pytest.raises(BadSetting, match="source is 'z'; choose one of a, b, c"):
            ask(tmp_path, {"do": "cut", "source": "z"})
        with pytest.raises(BadSettings, match="`do` must be one of"):
            ask(tmp_path, {})
        text = "#" + "\n" * 65_000 + 'seed = "µ"'
        assert ask(tmp_path, {"do": "schedule", "faults": text})["sentences"] == []
    assert list(tmp_path.iterdir()) == []


def test_only_the_user_of_the_daemon_may_change_its_links(tmp_path):
    control = Control(tmp_path / "a.link", lambda request: b"{}")
    assert (tmp_path / "a.link").stat().st_mode & 0o777 == 0o600
    control.close()


def test_an_absent_a_stale_and_a_second_daemon_are_named(tmp_path):
    for _ in range(2):
        with pytest.raises(Failure, match=f"no daemon serves below {tmp_path}; start one with: weft serve --folder"):
            ask(tmp_path, {"do": "show"})
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stale:      # a daemon that was killed
            if not (tmp_path / "a.link").exists():
                stale.bind(str(tmp_path / "a.link"))
    first, second = (Control(tmp_path / f"{host}.link", lambda request: b"{}") for host in "ab")
    with pytest.raises(Failure, match="several daemons"):
        ask(tmp_path, {"do": "show"})
    first.close()
    second.close()
    with pytest.raises(Failure, match="no daemon"):
        ask(tmp_path / "none", {"do": "show"})


def test_no_datagram_ends_the_daemon_or_leaves_a_descriptor(tmp_path):
    faults, _, _ = made()
    control = Control(tmp_path / "a.link", faults.answer)
    before = len(os.listdir("/proc/self/fd"))
    for sent in (b"", b"{", b"\xff", b"[" * 100_000, b'{"do": "cut", "source": NaN}', bytes(REQUEST_BYTES_MAX // 2)):
        for attached in ([], ["socket"], ["file"]):
            with (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there, open(os.devnull) as file):
                ours, theirs = socket.socketpair()
                there.connect(str(tmp_path / "a.link"))
                files = [theirs.fileno() if kind == "socket" else file.fileno() for kind in attached]
                socket.send_fds(there, [sent], files)
                control.serve()
                theirs.close()
                if attached == ["socket"]:
                    assert {"problem", "setting"} & set(json.loads(ours.recv(65536)))
                ours.close()
    control.serve()
    assert len(os.listdir("/proc/self/fd")) == before
    control.close()


def test_given_settings_are_those_that_differ():
    assert given(LinkSettings(loss=0, burst=2)) == {"loss": 0, "burst": 2}
