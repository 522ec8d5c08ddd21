"""Cases with served cards, on outputs of programs; their ends, with a script in the place of a program."""

import itertools
from types import SimpleNamespace

import pytest

from weft.tb.verify.linux import guest_served, served_cases
from weft.tb.verify.linux.guest import GuestFailed

PING_PONG = "81920 bytes in 2.53 seconds = 0.26 Mbit/sec\n10 iters in 2.53 seconds = 253000.00 usec/iter\n"
WRITE_BW = (" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
            " 65536      20               5.12               4.25               0.000068\n")
RPING = "".join(f"ping data: rdma-ping-{n}: ABC\n" for n in range(3))
ATTRIBUTES = "\tmax_mr:\t\t\t\t{mrs}\n\tport:\t1\n\t\t\tstate:\t\t\tPORT_{state} (4)\n"


def lab_with(result):
    """Return a lab whose guest puts out a result, and whose links lose 2 packets meanwhile and send 1 again."""
    frames = (numbers for n in itertools.count() for numbers in ((100 * n, 2 * n, n),))
    return SimpleNamespace(guests={"a": SimpleNamespace(run=lambda *_, **__: result)}, frames=lambda: next(frames),
                           preset="test")


def ends(output, status=0):
    return {"ends": [{"output": output, "status": 0}, {"output": "the server's", "status": status}], "seconds": 4.0}


@pytest.mark.parametrize(("case", "output", "wrong", "figures"), [
    (served_cases.ping_pong, PING_PONG, PING_PONG.replace("seconds", "s"),
     {"rounds": (10, ""), "time": (2.53, "s"), "rate": (0.26, "Mbit/s")}),
    (served_cases.write_bw, WRITE_BW, WRITE_BW.replace(" 20 ", " 19 "),
     {"bytes": (20 * 65536, ""), "rate": (4.25, "MiB/s")}),
    (served_cases.rping, RPING, RPING.replace("-1:", "-0:"), {"pings": (3, "")})])
def test_rows_have_the_figures_of_the_programs(case, output, wrong, figures):
    assert case(lab_with(ends(output))) == {**figures, "run": (4.0, "s"), "lost": (2, ""), "sent again": (1, "")}
    for found in (ends(output, 1), ends(""), ends(wrong)):
        with pytest.raises(GuestFailed):
            case(lab_with(found))


def tools(mrs, state="ACTIVE", sent_again=1, received=40):
    card = {"tx_packets": 40, "rx_packets": received, "tx_retransmissions": sent_again}
    idle = dict.fromkeys(card, 0)
    return {"devinfo": [ATTRIBUTES.format(mrs=mrs, state=state)] * 2, "counters": [card, idle],
            "shown": ["link weft0/1 tx_pkts 40"] * 2}


def test_device_tools_agree_with_preset_and_links():
    mrs = served_cases.preset("test").mrs
    assert served_cases.device_tools(lab_with(tools(mrs))) == {
        "packets": (40, ""), "lost": (2, ""), "sent again": (1, "")}
    for wrong in (tools(mrs + 1), tools(mrs, "DOWN"), tools(mrs, sent_again=2), tools(mrs, received=41),
                  tools(mrs, received=0)):
        with pytest.raises(GuestFailed, match="devinfo shows|counters"):
            served_cases.device_tools(lab_with(wrong))


def test_the_client_of_rping_waits_for_its_server(tmp_path, monkeypatch):
    """The server listens when the client is started for the third time."""
    program = tmp_path / "rping"
    program.write_text(f"#!/bin/sh\ncd {tmp_path}\n"
                       "if [ $1 = -s ]; then until [ -e 3 ]; do sleep 0.02; done; exit 0; fi\n"
                       "for n in 1 2 3; do [ -e $n ] || { touch $n; echo pong $n; exit $((3 - n)); }; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = []
    guest_served.rping(SimpleNamespace(put=found.append), 3)
    assert [end["status"] for end in found[0]["ends"]] == [0, 0] and "pong 3" in found[0]["ends"][0]["output"]


def test_a_daemon_that_was_not_started_fails_the_row_of_its_end():
    with pytest.raises(GuestFailed, match="no daemon was started"):
        served_cases.ended(SimpleNamespace(daemon=None))


@pytest.mark.parametrize(("pins", "sentences", "complaints", "words"), [
    ([90, 10], ["host a: 3", "host b: 4"], [], None),
    ([90, 11], ["host a: 3", "host b: 4"], [], "1 pages are pinned"),
    ([90, 10], ["host a: 3", "a program"], [], "a program"),
    ([90, 10], ["host a: 3", "host b: 4"], ["DMAR: fault"], "DMAR: fault")])
def test_the_end_of_the_daemon_leaves_nothing(pins, sentences, complaints, words):
    left, told = iter(pins), iter(sentences)
    daemon = SimpleNamespace(interrupt=lambda: None, get=lambda: next(told), end=lambda: None)
    guest = SimpleNamespace(run=lambda name: {"pinned": next(left)} if name == "pins" else complaints)
    lab = SimpleNamespace(daemon=daemon, pins=10, guests={"a": guest})
    if words is None:
        assert served_cases.ended(lab) == {"unpinned": (80, "pages")}
    else:
        with pytest.raises(GuestFailed, match=words):
            served_cases.ended(lab)
