"""Figures of a Linux guest with a functional card: accesses and interrupts of a program, and pinning of pages."""

import statistics
import tempfile
from pathlib import Path

from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.verify.linux.lab import Lab

MEASURED = (("register_us", "linux_register_read", "us"), ("write_us", "linux_register_write", "us"),
            ("doorbell_us", "linux_doorbell_to_card", "us"), ("interrupt_us", "linux_interrupt", "us"),
            ("pages_per_s", "linux_pages_pinned", "pages/s"))
CONDITIONS = {
    "linux_register_read": "round trip", "linux_register_write": "posted: until the processor continues",
    "linux_doorbell_to_card": "a write and the read after it, minus the median of a read alone",
    "linux_interrupt": "register write, MSI-X, eventfd, end of the wait",
    "linux_pages_pinned": "buffers of 64 pages of 4 KiB, by VFIO"}


def measure(progress):
    """Boot a guest, and return medians with quartiles."""
    report_progress(progress, "booting a guest")
    with tempfile.TemporaryDirectory(prefix="weft-linux-") as folder, Lab(Path(folder), cards={"a": "a"}) as lab:
        lab.start()
        guest = lab.guests["a"]
        guest.run("bind")
        found = guest.run("measure")
        guest.shut_down()
        boot_s = guest.boot_s
    rows = [Row("linux_boot", "s", round(boot_s, 1), conditions="from the start of QEMU to the first program")]
    for key, name, unit in MEASURED:
        low, middle, high = statistics.quantiles(found[key], n=4)
        rows.append(Row(name, unit, round(middle, 1),
                        conditions=f"{CONDITIONS[name]}; quartiles {low:.4g} to {high:.4g}"))
    return rows
