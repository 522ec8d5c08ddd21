"""Cases of ``weft linux``: each is a function of the lab that returns its figures, ``{name: (value, unit)}``."""

import re
import statistics
from dataclasses import dataclass

from weft.hdl.contract import abi, pci
from weft.hdl.contract.params import preset
from weft.tb.verify.linux import served_cases
from weft.tb.verify.linux.guest import GuestFailed, check

# QEMU shows an endpoint on the root bus as one that is integrated there, without a link.
OF_QEMU = {pci.EXPRESS + at for at in (2, *range(12, 20), *range(44, 52))}
# The guest has neither a list of names nor an index of modules.
HARMLESS = ("libkmod", "pci.ids")
KERNEL_COMPLAINTS = re.compile(r"warn|error|fail|fault|\binvalid\b|unable|can't|no space", re.IGNORECASE)
MIB = 1 << 20
SURVEY_BEFORE, SURVEY_AFTER = "it is not bound to vfio-pci; as root: echo vfio-pci > ", "ready, by VFIO"


def expected(function):
    """Return what ``lspci -vvv`` prints for a function, as regular expressions."""
    bar = function.bars[0]
    return (
        rf" Class {function.class_code >> 8:04x}: (Device )?{function.vendor_id:04x}:{function.device_id:04x}|"
        rf"Infiniband controller.*: Device {function.vendor_id:04x}:{function.device_id:04x}",
        rf"Subsystem: (Device )?{function.vendor_id:04x}:{function.device_id:04x}",
        rf"Region {bar.index}: Memory at [0-9a-f]+ \({'64' if bar.is_64bit else '32'}-bit, "
        rf"{'' if bar.prefetchable else 'non-'}prefetchable\).* \[size={bar.size >> 10}K\]",
        rf"Capabilities: \[{pci.POWER_MANAGEMENT:x}\] Power Management version 3",
        r"D1- D2- .*PME\(D0-,D1-,D2-,D3hot-,D3cold-\)", r"Status: D[03] NoSoftRst\+",
        rf"Capabilities: \[{pci.MSIX:x}\] MSI-X: Enable[-+] Count={function.msix_vectors} Masked-",
        rf"Vector table: BAR={bar.index} offset={abi.MSIX_TABLE_OFFSET:08x}",
        rf"PBA: BAR={bar.index} offset={abi.MSIX_PBA_OFFSET:08x}",
        rf"Capabilities: \[{pci.EXPRESS:x}\] Express \(v2\) (Root Complex Integrated )?Endpoint",
        rf"DevCap:\s+MaxPayload {function.max_payload_bytes} bytes",
        rf"ExtTag{'+' if function.extended_tags else '-'}".replace("+", r"\+"), r"FLReset\+",
        rf"Capabilities: \[{pci.ERROR_REPORTING:x} v2\] Advanced Error Reporting",
        r"CEMsk:.*AdvNonFatalErr\+")


def unexpected(found, function):
    """Return sentences about what a guest found in the configuration space that is not as described.

    Parameters
    ----------
    found : dict
        Value of the program ``space``.
    function : PciFunction
    """
    text, problems = found["lspci"], []
    if found["status"]:
        problems.append(f"lspci ended with {found['status']}")
    problems += [f"lspci does not show {pattern}" for pattern in expected(function) if not re.search(pattern, text)]
    problems += [f"lspci shows {line.strip()}" for line in text.splitlines()
                 if "!!!" in line or "<access denied>" in line or "Unknown" in line or "TAbort+" in line]
    problems += [line for line in found["complaints"] if not any(word in line for word in HARMLESS)]
    problems += [f"kernel: {line}" for line in found["kernel"] if KERNEL_COMPLAINTS.search(line)]
    space = bytes.fromhex(found["config"])
    values, writable, clearable = pci.configuration(function)
    differing = {at for at in range(len(space)) if (space[at] ^ values[at]) & ~writable[at] & ~clearable[at] & 0xFF}
    if len(space) != pci.CONFIG_BYTES or differing - OF_QEMU:
        problems.append(f"configuration space differs at {sorted(map(hex, differing - OF_QEMU))}")
    return problems


@dataclass
class Case:
    """Row of the table: ``run(lab)`` returns figures, and raises GuestFailed."""

    name: str
    run: object


def boot(lab):
    """The machines start, and their cards are bound to vfio-pci."""
    lab.start()
    for guest in lab.guests.values():
        found = guest.run("bind")
        for words, lines in ((SURVEY_BEFORE, found["before"]), (SURVEY_AFTER, found["after"])):
            check(len(lines) == len(lab.cards[guest.name]) and all(words in line for line in lines), f"survey: {found}")
    return {"boot": (statistics.median(guest.boot_s for guest in lab.guests.values()), "s")}


def configuration(lab):
    """Linux decodes the configuration space as the description has it, and complains about nothing."""
    found = lab.guests["a"].run("space")
    problems = unexpected(found, pci.card_function(preset(lab.preset)))
    check(not problems, "; ".join(problems))
    return {"capabilities": (found["lspci"].count("Capabilities: ["), "")}


def bring_up(lab):
    """The card is opened with a function-level reset, closed, and opened again."""
    before = lab.function("a").counters["resets"]
    times = lab.guests["a"].run("bring_up", number=0, slow=lab.slow)["bring_up_s"]
    resets = lab.function("a").counters["resets"] - before
    check(resets >= 2 * len(times), f"{resets} resets of the function in {len(times)} bring-ups")
    return {"bring-up": (min(times), "s"), "resets": (resets, "")}


def registers(lab):
    """Register and interrupt round trips of a program."""
    found = lab.guests["a"].run("measure")
    return {f"{name} round trip": (statistics.median(found[f"{name}_us"]), "us") for name in ("register", "interrupt")}


def ping_pong(lab, **options):
    """The example, with a client on guest b."""
    options["slow"] = lab.slow
    server = lab.guests["a"].start("ping_pong", number=0, **options)
    check(server.get() == "listening", "the server does not listen")
    times = lab.guests["b"].run("ping_pong", number=1, peer=0, **options)["rounds_ns"]
    server.result()
    return {"rounds": (len(times), ""), "median": (statistics.median(times) / 1e6, "ms")}


def joined(lab, jobs, count):
    """Carry ``count`` values of a pair of jobs from each to the other; return the results of both.

    Raises
    ------
    GuestFailed
        The message has the states of both jobs, and the counters of links and cards.
    """
    try:
        for source, to in count:
            value = jobs[source].get()
            jobs[to].put(value["send"])
        return [job.result() for job in jobs]
    except GuestFailed as failure:
        states = "; ".join(map(str, jobs))
        raise GuestFailed(f"{failure}; {states}; {lab.counters()}") from None


# Senders and receivers of the values of examples/file_copy.py: 0 sends the file.
FILE_COPY = ((0, 1), (1, 0), (0, 1), (1, 0), (0, 1))


def file_copy(lab, size=16 * MIB, **options):
    """The example: a file of random bytes from guest a to guest b."""
    _, lost, again = lab.frames()
    jobs = [lab.guests[host].start("file_copy", number=number, sends=not number, size=size, **options)
            for number, host in enumerate("ab")]
    sent, received = joined(lab, jobs, FILE_COPY)
    check(sent["digest"] == received["digest"], "the files differ")
    _, lost_after, again_after = lab.frames()
    lost, again = lost_after - lost, again_after - again
    check(lost == again, f"{lost} packets lost, {again} sent again")
    return {"goodput": (size / MIB / sent["seconds"], "MiB/s"), "lost": (lost, "packets"),
            "sent again": (again, "packets")}


def killed(lab):
    """A program that writes is killed: its memory is unpinned, and the next program finds a card that works."""
    a, b = lab.guests["a"], lab.guests["b"]
    before, ranges = a.run("pins")["pinned"], len(lab.function("a").dma)
    jobs = [guest.start("stream", number=number, sends=not number) for number, guest in enumerate((a, b))]
    for job, value in zip(jobs[::-1], [job.get()["send"] for job in jobs], strict=True):
        job.put(value)
    for job in jobs:
        check(job.get() == {"connected": True}, "no connection")
    jobs[0].get()
    pinned = len(lab.function("a").dma)
    jobs[0].kill()
    lab.until(lambda: len(lab.function("a").dma) == ranges, f"unmapped memory, {ranges} ranges before the program")
    left = a.run("pins")["pinned"] - before
    check(not left, f"{left} pages are pinned after the end of the program")
    jobs[1].put(None)
    jobs[1].result()
    return {"unpinned": (pinned - ranges, "pages"), **ping_pong(lab, rounds=3)}


def without_iommu(lab):
    """Machine b starts again without an IOMMU: physical addresses of huge pages, and polling."""
    lab.guests["b"].shut_down()
    lab.guests["b"].close()
    lab.start("b", iommu=False)
    found = lab.guests["b"].run("reserve", pages=32)["survey"]
    check("ready, by physical addresses, polling" in found[0], f"survey: {found}")
    return ping_pong(lab)


def ended(lab):
    """The cards are unbound, and the machines end."""
    for guest in lab.guests.values():
        if guest.iommu:
            check(not (bound := guest.run("unbind")["bound"]), f"still bound: {bound}")
        guest.shut_down()
    for name, function in lab.machine.functions.items():
        lab.until(lambda function=function: not len(function.dma) and not function.dma.files, f"memory of {name} free")
        check(not function.counters["unsupported_requests"],
              f"{function.counters['unsupported_requests']} accesses of card {name} to memory that is not mapped")
    # The kernel takes bus mastering from the card of a program that was killed, and then resets it.
    stops = [one for one in lab.sentences if "the card stops" in one and "DmaLost" not in one]
    check(not stops, f"a card has stopped: {stops}")
    return {"resets": (sum(function.counters["resets"] for function in lab.machine.functions.values()), "")}


def huge_pages(lab):
    """The file is in huge pages of both guests."""
    for guest in lab.guests.values():
        guest.run("reserve", pages=32)
    return file_copy(lab, huge=True)


SERVED = (
    Case("devinfo, counters", served_cases.device_tools),
    Case("weft serve, two cards", served_cases.serve),
    Case("ibv_rc_pingpong -c -e", served_cases.ping_pong),
    Case("ib_write_bw", served_cases.write_bw),
    Case("rping", served_cases.rping),
    Case("served program killed", served_cases.killed),
    Case("weft serve, end", served_cases.ended),
)
CASES = (
    Case("boot, bind to vfio-pci", boot),
    Case("lspci -vvv", configuration),
    Case("bring-up, FLR, again", bring_up),
    Case("register, interrupt", registers),
    Case("ping_pong, interrupts", ping_pong),
    Case("ping_pong, polling", lambda lab: ping_pong(lab, polling=True)),
    *SERVED,
    Case("file_copy, 4 KiB pages", file_copy),
    Case("file_copy, huge pages", huge_pages),
    Case("program killed", killed),
    Case("no IOMMU", without_iommu),
    Case("unbind, end", ended),
)
# Of a card as RTL, which a guest waits for.
RTL = (*CASES[:3], Case("ping_pong, interrupts", lambda lab: ping_pong(lab, rounds=3)), CASES[-1])
# Of a single machine.
SHORT = (*CASES[:4], *SERVED, CASES[-1])
