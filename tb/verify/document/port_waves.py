"""Waves of the card's ports, measured on the RTL, for the timing diagrams of docs/integration.md.

``python -m weft.tb.verify.document.port_waves [FILE]`` runs the bench of :mod:`~weft.tb.verify.document.port_run` and
writes parts of its record to :data:`DATA`, or to ``FILE``, as WaveJSON, the format of WaveDrom: ``p`` is the clock,
``x`` a value without meaning because ``tvalid`` is low, ``|`` a cut.
"""

import argparse
import json
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from weft.hdl.contract import abi
from weft.tb.sim.flow.sources import ROOT
from weft.tb.sim.stream.bus import BEAT_BYTES, DATA_BITS
from weft.tb.verify.document import port_run

DATA = "docs/ports.json"
READ, WRITE = 0, 1                # request types of a descriptor (PG213)
WIDTHS = {"m_axis_tx": (64, 17), "s_axis_rx": (64, 1), "m_axis_rq": (16, 137), "s_axis_rc": (16, 161),
          "s_axis_cq": (16, 183), "m_axis_cc": (16, 81)}      # bits of tkeep and tuser
# Fields of tuser that the diagrams show: name, lowest bit, bits.
USER = {"m_axis_tx": (("error", 0, 1),), "s_axis_rx": (("error", 0, 1),),
        "m_axis_rq": (("first_be", 0, 4), ("last_be", 8, 4), ("is_sop", 20, 1), ("is_eop", 26, 1)),
        "s_axis_rc": (("is_sop", 64, 1), ("is_eop", 76, 1)),
        "s_axis_cq": (("first_be", 0, 4), ("last_be", 8, 4), ("is_sop", 80, 1), ("is_eop", 86, 1)),
        "m_axis_cc": (("is_sop", 0, 1), ("is_eop", 6, 1))}


@dataclass(frozen=True)
class Beat:
    """Beat of a stream while ``tvalid`` is high."""

    cycle: int
    first: bool
    last: bool
    ready: bool
    keep: int
    user: int
    data: int
    number: int         # within its packet
    transfer: int       # number of transfers before it

    def request(self):
        """Return ``(type, address, bytes)`` of the request on RQ or CQ that begins with this beat."""
        return self.data >> 75 & 0xF, self.data & ~3 & (1 << 64) - 1, (self.data >> 64 & 0x7FF) * 4


class Record:
    """Ports of one card over a run."""

    def __init__(self, records):
        self._starts = [cycle for cycle, _ in records]
        self._values = [values for _, values in records]
        self.cycles = self._starts[-1] + 1
        self.streams = {stream: self._beats(stream) for stream in port_run.STREAMS}

    def at(self, cycle, name):
        """Return the bits of a port, or of the beat of a stream, in a cycle."""
        return self._values[bisect_right(self._starts, cycle) - 1][name]

    def _beats(self, stream):
        """Return ``{cycle: Beat}`` of a stream."""
        found, number, transfers = {}, 0, 0
        keep, user = WIDTHS[stream]
        for cycle in range(self.cycles):
            bits, ready = self.at(cycle, f"{stream}__beat"), self.at(cycle, f"{stream}__tready") == "1"
            if bits:
                assert len(bits) == 2 + user + keep + DATA_BITS
                found[cycle] = Beat(cycle, number == 0, bits[1] == "1", ready, int(bits[2 + user:-DATA_BITS], 2),
                                    int(bits[2:2 + user], 2), int(bits[-DATA_BITS:], 2), number, transfers)
                number, transfers = number + ready, transfers + ready
                if ready and bits[1] == "1":
                    number = 0
        return found

    def first(self, stream, wanted, after=0):
        """Return the first beat of a stream from the cycle ``after`` on for which ``wanted(beat)`` holds."""
        return next(beat for cycle, beat in self.streams[stream].items() if cycle >= after and wanted(beat))

    def end(self, stream, after):
        """Return the last beat of the packet in transfer on a stream in the cycle ``after``, or of the next one."""
        return self.first(stream, lambda beat: beat.last and beat.ready, after)


def wave(name, values):
    """Return a row of WaveJSON.

    A value is True, False, a text, None (no meaning) or ``...`` (a cut), or a text with a number that distinguishes it
    from an equal text before it.
    """
    wave, data, last = "", [], object()
    for value in values:
        if value is ...:
            wave += "|"
        elif value == last:
            wave += "."
        else:
            text = value[0] if isinstance(value, tuple) else value
            wave += {True: "1", False: "0", None: "x"}.get(text, "=")
            data += [text] * isinstance(text, str)
            last = value
    return {"name": name, "wave": wave} | ({"data": data} if data else {})


def spans(*parts):
    """Return the cycles of several spans, ``(first, last)`` each, with cuts between them."""
    found = []
    for first, last in parts:
        found += [...] * bool(found) + [*range(first, last + 1)]
    return found


def clock(cycles):
    return {"name": "clk", "wave": "".join("|" if cycle is ... else "." if at else "p"
                                           for at, cycle in enumerate(cycles))}


def port(record, name, bit, cycles, shown):
    """Return the row of a bit of a port."""
    return wave(shown, [... if cycle is ... else record.at(cycle, name)[-1 - bit] == "1" for cycle in cycles])


def stream(record, name, cycles, members=None):
    """Return the rows of a stream: of all its members, or of some."""
    beats = record.streams[name]

    def row(shown, value):
        return wave(shown, [... if cycle is ... else value(beats[cycle]) if cycle in beats else None
                            for cycle in cycles])

    rows = [wave("tvalid", [... if cycle is ... else cycle in beats for cycle in cycles]),
            port(record, f"{name}__tready", 0, cycles, "tready"),
            row("tdata", lambda beat: (content(name, beat), beat.transfer)),
            row("tkeep", lambda beat: lanes(name, beat)),
            row("tlast", lambda beat: beat.last)]
    for field, low, bits in USER[name]:
        rows.append(row(f"tuser {field}", lambda beat, low=low, bits=bits: (
            bool(beat.user >> low & 1) if bits == 1 else f"{beat.user >> low & (1 << bits) - 1:X}")))
    return [row for row in rows if members is None or row["name"] in members]


def content(name, beat):
    """Return a short text about the data of a beat."""
    if name in ("m_axis_tx", "s_axis_rx"):
        at = beat.number * BEAT_BYTES
        return f"{at}–{at + beat.keep.bit_count() - 1}"
    if name in ("m_axis_rq", "s_axis_cq") and beat.first:
        kind, _, count = beat.request()
        return f"{({READ: 'read', WRITE: 'write'}[kind])} {count} B"
    return "header" if beat.first else "data"


def lanes(name, beat):
    """Return a short text about ``tkeep``, whose ones are always the lowest bits."""
    count = beat.keep.bit_count()
    assert beat.keep == (1 << count) - 1
    return "all" if count == WIDTHS[name][0] else f"low {count}"


def frame(sender, receiver):
    """Return the waves of a frame, at the card that sends it and at the one that receives it."""
    tx = sender.first("m_axis_tx", lambda beat: not beat.last)
    rx = receiver.first("s_axis_rx", lambda beat: not beat.last)
    cycles = spans((tx.cycle - 1, sender.end("m_axis_tx", tx.cycle).cycle + 1),
                   (rx.cycle - 1, receiver.end("s_axis_rx", rx.cycle).cycle + 1))
    return [clock(cycles), ["m_axis_tx of card A", *stream(sender, "m_axis_tx", cycles)],
            ["s_axis_rx of card B", *stream(receiver, "s_axis_rx", cycles)]]


def register(record):
    """Return the waves of a read of a register by the host, and of two writes, the second of which waits."""
    beats = record.streams["s_axis_cq"]
    read, write = (record.first("s_axis_cq", lambda beat, kind=kind: beat.request()[0] == kind
                                and beat.cycle - 1 not in beats) for kind in (READ, WRITE))
    cycles = spans(*sorted([(read.cycle - 1, record.end("m_axis_cc", read.cycle).cycle + 1),
                            (write.cycle - 1, write.cycle + 4)]))
    return [clock(cycles), ["s_axis_cq", *stream(record, "s_axis_cq", cycles)],
            ["m_axis_cc", *stream(record, "m_axis_cc", cycles)]]


def read(record):
    """Return the waves of a read of host memory, the payload of a packet."""
    request = record.first("m_axis_rq", lambda beat: beat.first and beat.request()[0] == READ
                           and beat.request()[2] == port_run.PAYLOAD_BYTES)
    answer = record.first("s_axis_rc", lambda beat: beat.first, request.cycle)
    cycles = spans((request.cycle - 1, request.cycle + 1),
                   (answer.cycle - 1, record.end("s_axis_rc", answer.cycle).cycle + 1))
    return [clock(cycles), ["m_axis_rq", *stream(record, "m_axis_rq", cycles)],
            ["s_axis_rc", *stream(record, "s_axis_rc", cycles)]]


def interrupt(record):
    """Return the waves of the writes after a received packet: payload, report, and MSI-X message."""
    def writes(count):
        return lambda beat: beat.first and beat.request()[0] == WRITE and beat.request()[2] == count

    payload = record.first("m_axis_rq", writes(port_run.PAYLOAD_BYTES))
    report = record.first("m_axis_rq", writes(abi.BLOCK_BYTES), payload.cycle)
    message = record.first("m_axis_rq", writes(4), report.cycle)
    cycles = spans((payload.cycle - 1, record.end("m_axis_rq", report.cycle).cycle + 1),
                   (message.cycle - 1, message.cycle + 1))
    return [clock(cycles), ["m_axis_rq", *stream(record, "m_axis_rq", cycles)]]


def reset(record):
    """Return the waves from the reset to the first request of the card to host memory."""
    def rises(name, bit):
        return next(cycle for cycle in range(record.cycles) if record.at(cycle, name)[-1 - bit] == "1")

    def accesses(kind, register):
        return lambda beat: (beat.request()[0] == kind
                             and beat.request()[1] % abi.BAR_BYTES == abi.REGISTER[register].offset)

    fall = next(cycle for cycle in range(record.cycles) if record.at(cycle, "rst") == "0")
    magic = record.first("s_axis_cq", accesses(READ, "magic")).cycle
    answer = record.end("m_axis_cc", magic).cycle
    control = record.first("s_axis_cq", lambda beat: accesses(WRITE, "control")(beat) and beat.data >> 128 & 1).cycle
    request = record.first("m_axis_rq", lambda beat: True).cycle
    cycles = spans(*sorted({(event - 1, event) for event in (
        fall, rises("cfg_function_status", 2), rises("cfg_interrupt_msix_enable", 0), magic, control)}
        | {(answer - 1, answer), (request - 1, request + 1)}))
    rows = [clock(cycles), port(record, "rst", 0, cycles, "rst"),
            port(record, "cfg_function_status", 2, cycles, "cfg_function_status[2]"),
            port(record, "cfg_interrupt_msix_enable", 0, cycles, "cfg_interrupt_msix_enable[0]")]
    return rows + [[name, *stream(record, name, cycles, ("tvalid", "tdata"))]
                   for name in ("s_axis_cq", "m_axis_cc", "m_axis_rq")]


def measure():
    """Measure the waves of the card's ports on the RTL: ``{picture: rows}``."""
    a, b = (Record(records) for records in port_run.recorded().values())
    return {"frame": frame(a, b), "register": register(b), "read": read(a), "interrupt": interrupt(b),
            "reset": reset(b)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m weft.tb.verify.document.port_waves", description=measure.__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=ROOT / DATA, help=f"WaveJSON; {DATA} by default")
    given = parser.parse_args()
    if not given.file.parent.is_dir():
        parser.error(f"{given.file.parent} does not exist; the file is written there")
    given.file.write_text(json.dumps(measure(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
