"""Moments of interest in the waves: around the first lost packet."""

import re
from collections import Counter
from dataclasses import dataclass, replace

from weft.hdl.contract import wire
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS

ORIGINALS = wire.DATA_OPCODES - wire.RETX_OPCODES
PS_PER_NS = 1000
HEADER_WITHIN_NS = 10_000    # thirty times the time of a frame of 4 KiB through MAC and parser
JUDGE = "receive.window_check"      # block that shows a header after the parser


@dataclass(frozen=True)
class Moment:
    """Moment in the waves: a sentence, its time, and the packet that it is about."""

    sentence: str
    time_ns: float
    opcode: int
    psn: int


def first_loss(captures):
    """Return the moments around the first lost data packet, at the times of a run's captures.

    They are the transmission of the lost packet, the arrival of the next one, and the arrival of the first
    retransmission. The list is empty if no packet was lost.
    """
    try:
        sent, arrived = (read_pcap(captures / f"a_to_b.{subject}.pcap") for subject in ("sent", "arrived"))
    except OSError:
        return []
    left, moments = Counter(frame for _, frame in arrived), []
    for time, frame in sent:
        if _header(frame)[0] not in ORIGINALS:
            continue
        if left[frame]:
            left[frame] -= 1
            if moments:
                at = next(at for at, other in arrived if other == frame and at > time)
                moments.append(Moment("next arrives", at, *_header(frame)))
                break
        elif not moments:
            moments.append(Moment("lost", time, *_header(frame)))
    else:
        return []
    for at, frame in arrived:
        if _header(frame)[0] in wire.RETX_OPCODES and at > moments[-1].time_ns:
            return [*moments, Moment("retransmission arrives", at, *_header(frame))]
    return moments


def _header(frame):
    """Return opcode and PSN of a RoCEv2 frame; None and None for another frame."""
    if len(frame) < wire.RETH_OFFSET:
        return None, None
    header = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
    return header.opcode, header.psn


def shown(moments, waves, root):
    """Return the moments, with those of arrivals moved to the time when the packet's header appears in card B.

    The captures hold the time of a frame's arrival at the MAC; the card reads its header later, after those of earlier
    frames. ``root`` is the instance of card B in the file ``waves``.
    """
    import pywellen

    wanted = {f"{root}.{JUDGE}.{signal}": signal.rpartition("__")[2].rpartition(".")[2]
              for signal in ("i__valid", "i__payload.header.opcode", "i__payload.header.psn")}
    found = {}
    for var in pywellen.Waveform(str(waves)).all_vars():
        name = re.sub(r"\s*\[\d+:\d+\]$", "", var.full_name).replace("\\", "")
        if name in wanted:
            found[wanted[name]] = var.signal
    if len(found) < len(wanted):
        return moments

    def taken(moment):
        if moment.sentence == "lost":
            return moment
        for time in range(round(moment.time_ns), round(moment.time_ns) + HEADER_WITHIN_NS, CLOCK_PERIOD_NS):
            value = {name: signal.value_at(time * PS_PER_NS) for name, signal in found.items()}
            if value == {"valid": 1, "opcode": moment.opcode, "psn": moment.psn}:
                return replace(moment, time_ns=time)
        return moment
    return [taken(moment) for moment in moments]
