"""Parts of the documents that are measured: tables made from the reports of the commands that measure.

They lie between ``<!-- measured: NAME -->`` and ``<!-- end -->`` and change only when somebody asks for it with
``python -m weft.tb.verify.document --measured``. A row whose figures the report lacks stays as it is, so that one
benchmark can be run and taken over alone.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from weft.tb.app.device.registers import table

REPORTS = Path("sim_build/reports")
PART = re.compile(r"(<!-- measured: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
HEAD = ("what", "value", "conditions", "command")


@dataclass(frozen=True)
class Figure:
    """A row of the table: what it is, its text with names of benchmark rows in braces, and under which conditions."""

    what: str
    value: str
    conditions: str

    def text(self, found):
        """Cells of the row, or None if a figure is not there; ``found``: rows of the report by name."""
        names = re.findall(r"{(\w+)", self.value)
        if not set(names) <= set(found):
            return None
        value = self.value.format(**{name: found[name]["value"] for name in names})
        return self.what, value, self.conditions, f"`{found[names[0]]['command']}`"

    def kept(self, rows):
        """The row as it is in the document, or None."""
        return rows.get(self.what) and (self.what, rows[self.what][1], self.conditions, rows[self.what][3])


_ALONE = "the Adamap room alone, reads of 1 µs, 1 KiB packets at 100 Gb/s, losses reported by the millisecond"
FIGURES = (
    Figure("payload, both ways at once, PMTU 4096; 1024",
           "{rx_payload_gbps:.1f} Gb/s, {rx_payload_gbps_two_clocks:.1f} with two clocks, of the "
           "{payload_limit_gbps:.2f} that Ethernet has room for; {rx_payload_gbps_1024:.1f}, "
           "{rx_payload_gbps_1024_two_clocks:.1f}, of {payload_limit_gbps_1024:.2f}",
           "1 QP, 64 KiB messages, no loss; two clocks: cards at 250 MHz ± 500 ppm, MACs at 322.27 MHz + 332 and "
           "- 312 ppm"),
    Figure("payload, both ways at once, PMTU 4096, hosts that split completions at 64 bytes",
           "{tx_payload_gbps_split64_straddle:.1f} Gb/s with straddle, {tx_payload_gbps_split64:.1f} without",
           "1 QP, 64 KiB messages, no loss"),
    Figure("64-byte writes a second", "{tx_message_rate_mpps:.1f} million one way, "
           "{message_rate_both_ways_mpps:.1f} million each way both ways",
           "1 QP, 1000 in flight, through the driver, tags as in `basic`"),
    Figure("64-byte writes to a receiver that cannot keep up",
           "{overload_goodput_ratio:.1%} of what it can take, {overload_sent_again_slow_host:.2f} sent again each",
           "77 million a second offered, every one reported, 4000 in flight; its host takes nothing in 30 % of all "
           "cycles, or has 64 entries for reports: the worse of both; packets sent again in the first"),
    Figure("how evenly eight QPs share such a receiver", "Jain's index {overload_share_jain_slow_host:.3f}",
           "the same, the slow host"),
    Figure("payload of writes, of reads, of sends", "{write_payload_gbps:.1f}, {read_payload_gbps:.1f}, "
           "{send_payload_gbps:.1f} Gb/s", "1 QP, 64 KiB messages, PMTU 4096, 16 in flight, no loss"),
    Figure("register accesses per message", "{mmio_per_message:.1f}; {mmio_per_small_message:.2f}",
           "12 QPs with 64 KiB; 1 QP with 64 bytes both ways; waits by interrupt"),
    Figure("from `post_send` to the receiver's completion", "{post_send_to_receiver_completion_ns:,.0f} ns",
           "64 bytes, an idle card; one read of host memory of 1 µs is in it, the driver takes no time"),
    Figure("the same, inline", "{inline_post_send_to_receiver_completion_ns:,.0f} ns",
           "64 bytes, an idle card that reads no host memory for it"),
    Figure("inline writes of 64 bytes a second", "{inline_tx_message_rate_mpps:.1f} million one way, with "
           "{read_requests_per_inline_message:.1f} reads of host memory each in place of "
           "{read_requests_per_small_message:.2f}",
           "1 QP, 1000 in flight, two entries of the ring each, as in `basic`"),
    Figure("retransmissions matched with their nodes",
           "interval {adamap_match_interval_cycles:.0f}, latency {adamap_match_latency_cycles:.0f} cycles",
           "the matcher alone, nodes cached, lists walked node by node to their end; the window in front takes a "
           "packet per 2 cycles"),
    Figure("retransmissions that find their node on the card, 1 QP",
           "{adamap_unstalled_fraction_batched_n2:.1%}",
           f"{_ALONE}: 1e-3 at random; n = 2, cache of 32, nodes linked ahead in consecutive blocks, rests between "
           "reports"),
    Figure("the same, 8 QPs; 8 QPs that lose every 384th packet",
           "{adamap_unstalled_fraction_batched_q8_n4:.1%}; {adamap_unstalled_fraction_comb_q8_n4:.1%}",
           f"{_ALONE}: 1e-3 at random; n = 4, cache of 16, scattered blocks, QPs mixed packet by packet, no rests"),
    Figure("card memory of a QP that loses nothing", "{adamap_sram_bytes_per_qp:.1f} bytes",
           "the Adamap room, each bit once: window of 128 bits, list; without the QP table"),
    Figure("of a QP that recovers", "{adamap_sram_bytes_recovering_qp:.0f} bytes; as built "
           "{adamap_sram_bytes_recovering_qp_default:.0f}",
           "the same, with an open node and one cached node; as built: with 4 cached nodes (the default), the QP "
           "table, and copies for read ports"),
    Figure("of 10,000 QPs, 5 % of which recover", "{adamap_sram_total_10k_qps_5pct:.0f} KiB; as built "
           "{adamap_sram_total_10k_qps_5pct_default:.0f}",
           "each bit once, one cached node per QP that recovers; as above"),
    Figure("blocks leaked, stale nodes or packets accepted", "{adamap_block_leaks:.0f}, {adamap_stale_accepts:.0f}",
           "a million lives of nodes in the functional model, ten thousand in the RTL"),
    Figure("random and mutated frames that raised, hung, completed or wrote what they must not", "{fuzz_failures:.0f}",
           "a million into two drivers over functional cards, a hundred thousand into two real cards"),
    Figure("PCIe faults that lost a tag or credit, hung, or put wrong bytes in", "{pcie_fault_failures:.0f}",
           "ten thousand of 18 kinds into the PCIe room, reads in 1 µs; all, resets, removals, damaged rings, nodes "
           "and page lists over two cards"),
    Figure("goodput that an honest QP keeps beside an attack", "at least {hostile_goodput_kept_min:.1%}",
           "50 Gb/s honest, 45 Gb/s of one of 12 kinds of attack: strangers, former lives, wrong keys, far PSNs, "
           "forged control frames, noise"),
    Figure("cycles of two cards in a world that fails, and what failed in them",
           "{soak_cycles:,.0f}; {soak_failures:.0f}", "random runs: loss, bad hosts, resets, removals, strangers, "
           "wraps, churn; presets `test` and `basic`; wrong bytes, completions, leaks or stalls count"),
    Figure("small faults of the RTL that its tests notice", "{mutants_killed_fraction:.1%}",
           "drawn by rule and seed, each against the tests of its own room; those that change nothing are left out"),
)
SIM_ROWS = ("packets_sent", "packets_lost", "packets_retransmitted", "spurious_retransmissions", "goodput_gbps")
KINDS = {"lut": "LUT", "lutram": "LUT as RAM", "ff": "flip-flops", "srl": "SRL", "carry": "carry", "bram18": "RAMB18",
         "bram36": "RAMB36", "uram": "URAM", "dsp": "DSP"}


def _rows(text):
    """Rows of a Markdown table by their first cell."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()[2:]]
    return {row[0].strip("| "): [cell.strip("| ") for cell in row] for row in cells if len(row) == len(HEAD)}


def bench(report, before):
    """The table of figures: what the report has, and for the rest what stands there."""
    found, old = {row["name"]: row for row in report}, _rows(before)
    rows = [figure.text(found) or figure.kept(old) for figure in FIGURES]
    return table(HEAD, [row for row in rows if row])


def sim(report, _before):
    """What ``weft sim`` prints, in extracts."""
    def shown(value):
        if value is None:
            return "–"
        return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"

    lines = [f"{name.replace('_', ' '):<26}{shown(report[name])}" for name in SIM_ROWS]
    return "\n".join(["```", *lines, "PASSED" if report["ok"] else "FAILED", "```"])


def synth(report, _before):
    """Cells of every room."""
    blocks = report["blocks"]
    kinds = [kind for kind in KINDS if blocks[""].get(kind)]
    rooms = sorted(name for name in blocks if name and "." not in name)
    return f"Preset `{report['preset']}`:\n\n" + table(("", *(KINDS[kind] for kind in kinds)), [
        (f"`{room}`" if room else "**card**", *(f"{blocks[room][kind]:,}" for kind in kinds)) for room in (*rooms, "")])


def _of_preset(report, preset):
    """What a report of synthesis has of a preset, or None."""
    return next((each for each in (report, *report.get("others", ())) if each["preset"] == preset), None)


def full(report, before):
    """How large the largest card is, and its longest path."""
    found = _of_preset(report, "full")
    if not found:
        return before.rstrip("\n")
    card = found["blocks"][""]
    return (f"All of `full` takes {card['lut']:,} LUT, {card['bram36'] + card['bram18'] / 2:,g} block RAMs of 36 kbit "
            f"and {card['uram']:,}\nUltraRAMs of the 1,344 and 640 of an Alveo U50; its longest path is "
            f"{found['paths']['']['ns']:.2f} ns.")


AREA_PRESET = "basic"
AREA_ROOMS = ("adamap", "endpoint", "rings", "transmit", "receive", "tables", "command")     # the rest stands together
# What others publish, in the rows of the table: of other things, on other chips, by other tools.
PEERS = {"DCP, beside go-back-N": ("+1.7 %", "", "+1.1 %", "300 MHz"),
         "SLAC surf": ("81,168", "113,840", "279.5", "met")}


def area(report, before):
    """Cells and longest path of the rooms of preset ``basic``, and what others publish, a column each."""
    found = _of_preset(report, AREA_PRESET)
    if not found:
        return before.rstrip("\n")
    blocks, paths = found["blocks"], found.get("paths", {})
    rest = [room for room in blocks if room and "." not in room and room not in AREA_ROOMS]
    columns = {f"`{room}`": ((room,), paths.get(room)) for room in AREA_ROOMS if room in blocks}
    longest = max((paths[room] for room in rest if room in paths), key=lambda path: path["ns"], default=None)
    columns["others"] = rest, longest
    columns["**card**"] = ("",), paths.get("")

    def cells(rooms, path):
        lut, ff, ram, half, ultra = (sum(blocks[room].get(kind, 0) for room in rooms)
                                     for kind in ("lut", "ff", "bram36", "bram18", "uram"))
        return (f"{lut:,}", f"{ff:,}", f"{ram + half / 2:,g}" + f" + {ultra} UltraRAM" * bool(ultra),
                f"{path['ns']:.2f} ns" if path else "")

    filled = {name: cells(*column) for name, column in columns.items()} | PEERS
    return table(("", *filled), zip(("LUT", "flip-flops", "block RAM, 36 kbit", "longest path, or clock"),
                                    *filled.values(), strict=True))


REPORT_OF = {"area": "synth", "full": "synth"}      # other parts have a report of their name
MAKERS = {"bench": bench, "sim": sim, "synth": synth, "area": area, "full": full}


def fill(text, reports=REPORTS):
    """A document with its measured parts taken from the reports; a part without a report stays as it is."""
    def made(found):
        file = reports / f"{REPORT_OF.get(found[2], found[2])}.json"
        if not file.exists():
            return found[0]
        return found[1] + MAKERS[found[2]](json.loads(file.read_text(encoding="utf-8")), found[3]) + "\n" + found[4]

    return PART.sub(made, text)
