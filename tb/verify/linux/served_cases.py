"""Cases of ``weft linux`` with the two cards of guest a: device tools, and unmodified programs on served cards."""

import re
import signal
import time

from weft.hdl.contract.params import preset
from weft.tb.verify.linux.guest import check

GUEST = "a"
PING_PONG = ("ibv_rc_pingpong", "-g", "0", "-c", "-e", "-n")
WRITE_BW = ("ib_write_bw", "-s", "65536")
PINGS = 3
FRAMES = 200                 # on the links, after which a program surely writes
TAIL = 600                   # characters of a program's output in a message


def device_tools(lab):
    """``weft devinfo`` and ``weft counters`` of both cards: the preset's attributes; a short run over the link."""
    _, lost, again = lab.frames()
    found, card = lab.guests[GUEST].run("guest_served.tools"), preset(lab.preset)
    for shown in found["devinfo"]:
        check(re.search(rf"max_mr:\s+{card.mrs}\n(?s:.*)state:\s+PORT_ACTIVE", shown), f"devinfo shows {shown}")
    counted = {name: sum(card[name] for card in found["counters"])
               for name in ("tx_packets", "rx_packets", "tx_retransmissions")}
    _, lost_after, again_after = lab.frames()
    check(counted["tx_packets"] >= counted["rx_packets"] > 0 and counted["tx_retransmissions"] == again_after - again
          and all("link weft0/1 tx_pkts " in shown for shown in found["shown"]), f"counters: {counted}")
    return {"packets": (counted["tx_packets"], ""), "lost": (lost_after - lost, ""),
            "sent again": (counted["tx_retransmissions"], "")}


def serve(lab):
    """``weft serve --backend pci --device ADDRESSES`` starts with both cards."""
    lab.pins, start = lab.guests[GUEST].run("pins")["pinned"], time.monotonic()
    lab.daemon = lab.guests[GUEST].start("guest_served.serve")
    sentence = lab.daemon.get()
    check("hosts a, b are served" in sentence, sentence)
    return {"start": (time.monotonic() - start, "s")}


def ping_pong(lab, rounds=10):
    """``ibv_rc_pingpong``, which checks the data, with events."""
    output, figures = ran(lab, "pair", command=[*PING_PONG, str(rounds)])
    seconds, rate = of(r"bytes in ([\d.]+) seconds = ([\d.]+) Mbit/sec", output)
    return {"rounds": (rounds, ""), "time": (seconds, "s"), "rate": (rate, "Mbit/s"), **figures}


def write_bw(lab, writes=20):
    """``ib_write_bw``."""
    output, figures = ran(lab, "pair", command=[*WRITE_BW, "-n", str(writes)])
    size, count, _, average = of(r"^ *(\d+) +(\d+) +([\d.]+) +([\d.]+)", output)
    check((size, count) == (int(WRITE_BW[-1]), writes), f"ib_write_bw shows {output[-TAIL:]}")
    return {"bytes": (size * count, ""), "rate": (average, "MiB/s"), **figures}


def rping(lab):
    """``rping``, which connects by the connection manager."""
    output, figures = ran(lab, "rping", count=PINGS)
    found = re.findall(r"ping data: rdma-ping-(\d+)", output)
    check(found == [str(number) for number in range(PINGS)], f"rping shows {output[-TAIL:]}")
    return {"pings": (len(found), ""), **figures}


def killed(lab):
    """A program is killed while it writes; the next one finds a working card. Another user's program is refused."""
    job = lab.guests[GUEST].start("guest_served.killed", command=[*WRITE_BW, "--run_infinitely"])
    runs = job.get()
    before, *_ = lab.frames()
    lab.until(lambda: lab.frames()[0] > before + FRAMES, f"traffic of the program, {runs}")
    job.put(None)
    client, server = (end["status"] for end in job.result()["ends"])
    check(client == -signal.SIGKILL and server, f"the ends of the killed program have status {client} and {server}")
    found = lab.guests[GUEST].run("guest_served.refused", command=PING_PONG[:-1])
    check("those of this user may not" in found["output"], f"a program of another user: {found}")
    return ping_pong(lab, 3)


def ended(lab):
    """The daemon ends, no page of it or of its programs stays pinned, and the kernel has complained about nothing."""
    check(lab.daemon is not None, "no daemon was started")
    pinned = lab.guests[GUEST].run("pins")["pinned"]
    lab.daemon.interrupt()
    sentences = [lab.daemon.get(), lab.daemon.get()]
    lab.daemon.end()
    check(all(f"host {host}: " in sentence for host, sentence in zip("ab", sentences, strict=True)), f"{sentences}")
    left = lab.guests[GUEST].run("pins")["pinned"] - lab.pins
    check(not left, f"{left} pages are pinned after the end of the daemon")
    check(not (complaints := lab.guests[GUEST].run("guest_served.complaints")), f"kernel: {complaints}")
    return {"unpinned": (pinned - lab.pins, "pages")}


def ran(lab, program, **arguments):
    """Run a program of :mod:`weft.tb.verify.linux.guest_served` with two ends.

    Return the output of the client, and figures.
    """
    _, lost, again = lab.frames()
    found = lab.guests[GUEST].run(f"guest_served.{program}", **arguments)
    for end in found["ends"]:
        check(not end["status"], f"status {end['status']}: {end['output'][-TAIL:]}")
    _, lost_after, again_after = lab.frames()
    return found["ends"][0]["output"], {"run": (found["seconds"], "s"), "lost": (lost_after - lost, ""),
                                        "sent again": (again_after - again, "")}


def of(pattern, output):
    """Return the groups of a pattern in the output of a program, as numbers."""
    found = re.search(pattern, output, re.MULTILINE)
    check(found, f"no figures in {output[-TAIL:]}")
    return [float(group) if "." in group else int(group) for group in found.groups()]
