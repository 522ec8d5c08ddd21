"""Measured parts of the documents: tables made from the reports of the measuring commands.

A part lies between ``<!-- measured: NAME -->`` and ``<!-- end -->`` and changes only with
``python -m weft.tb.verify.document --measured``. A row whose figures the report lacks stays as it is, so that a single
benchmark can be run and its figures taken over.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from weft.tb.app.device.registers import table
from weft.tb.app.job.job import Job
from weft.tb.app.job.run import default_file

REPORTS = Path("sim_build/reports")
PART = re.compile(r"(<!-- measured: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
HEAD = ("what", "value", "conditions", "command")
REACH_HEAD = ("what", "value", "command")


@dataclass(frozen=True)
class Figure:
    """Row of the table: its name, its text with names of benchmark rows in braces, and the conditions."""

    subject: str
    value: str
    conditions: str

    def text(self, found):
        """Return the cells of the row, or None if a figure is missing; ``found``: rows of the report by name."""
        names = re.findall(r"{(\w+)", self.value)
        if not set(names) <= set(found):
            return None
        value = self.value.format(**{name: found[name]["value"] for name in names})
        return self.subject, value, self.conditions, f"`{found[names[0]]['command']}`"

    def kept(self, rows):
        """Return the row as it is in the document, or None."""
        return rows.get(self.subject) and (self.subject, rows[self.subject][1], self.conditions, rows[self.subject][3])


_ALONE = "Adamap subsystem alone, reads of 1 µs, 1 KiB packets at 100 Gb/s, losses reported per millisecond"
FIGURES = (
    Figure("payload, both directions at once, PMTU 4096; 1024",
           "{rx_payload_gbps:.1f} Gb/s, {rx_payload_gbps_two_clocks:.1f} with two clocks, of the "
           "{payload_limit_gbps:.2f} that Ethernet allows; {rx_payload_gbps_1024:.1f}, "
           "{rx_payload_gbps_1024_two_clocks:.1f}, of {payload_limit_gbps_1024:.2f}",
           "1 QP, 64 KiB messages, no loss; two clocks: cards at 250 MHz ± 500 ppm, MACs at 322.27 MHz + 332 and "
           "- 312 ppm"),
    Figure("payload, both directions at once, PMTU 4096, hosts that split completions at 64 bytes",
           "{tx_payload_gbps_split64_straddle:.1f} Gb/s with straddle, {tx_payload_gbps_split64:.1f} without",
           "1 QP, 64 KiB messages, no loss"),
    Figure("64-byte writes per second", "{tx_message_rate_mpps:.1f} million in one direction, "
           "{message_rate_both_ways_mpps:.1f} million per direction in both",
           "1 QP, 1000 outstanding, through the driver, tags as in `basic`"),
    Figure("64-byte writes to an overloaded receiver",
           "{overload_goodput_ratio:.1%} of its capacity, {overload_retransmissions_slow_host:.2f} retransmissions per "
           "write",
           "77 million per second offered, every one reported, 4000 outstanding; the receiving host stalls in 30 % of "
           "all cycles, or has 64 entries for reports: the worse of both; retransmissions in the first case"),
    Figure("fairness among eight QPs at this receiver", "Jain's index {overload_share_jain_slow_host:.3f}",
           "the same, the stalling host"),
    Figure("payload of writes, of reads, of sends", "{write_payload_gbps:.1f}, {read_payload_gbps:.1f}, "
           "{send_payload_gbps:.1f} Gb/s", "1 QP, 64 KiB messages, PMTU 4096, 16 outstanding, no loss"),
    Figure("register accesses per message", "{mmio_per_message:.1f}; {mmio_per_small_message:.2f}",
           "12 QPs with 64 KiB; 1 QP with 64 bytes in both directions; completion by interrupt"),
    Figure("latency from `post_send` to the receiver's completion", "{post_send_to_receiver_completion_ns:,.0f} ns",
           "64 bytes, idle card; includes one read of host memory of 1 µs and no driver time"),
    Figure("the same latency, inline", "{inline_post_send_to_receiver_completion_ns:,.0f} ns",
           "64 bytes, idle card, no read of host memory"),
    Figure("inline writes of 64 bytes per second", "{inline_tx_message_rate_mpps:.1f} million in one direction, with "
           "{read_requests_per_inline_message:.1f} reads of host memory each instead of "
           "{read_requests_per_small_message:.2f}",
           "1 QP, 1000 outstanding, two ring entries each, as in `basic`"),
    Figure("matching of retransmissions with their nodes",
           "interval {adamap_match_interval_cycles:.0f}, latency {adamap_match_latency_cycles:.0f} cycles",
           "matcher alone, nodes cached, lists traversed to their end; the window before it takes a packet per "
           "2 cycles"),
    Figure("retransmissions that hit the head cache, 1 QP",
           "{adamap_unstalled_fraction_batched_n2:.1%}",
           f"{_ALONE}: 1e-3 at random; n = 2, cache of 32, nodes linked ahead in consecutive blocks, pauses between "
           "reports"),
    Figure("the same, 8 QPs; 8 QPs that lose every 384th packet",
           "{adamap_unstalled_fraction_batched_q8_n4:.1%}; {adamap_unstalled_fraction_comb_q8_n4:.1%}",
           f"{_ALONE}: 1e-3 at random; n = 4, cache of 16, scattered blocks, QPs mixed packet by packet, no pauses"),
    Figure("card memory of a QP without losses", "{adamap_sram_bytes_per_qp:.1f} bytes",
           "Adamap subsystem, each bit once: window of 128 bits, list; without the QP table"),
    Figure("card memory of a QP in recovery", "{adamap_sram_bytes_recovering_qp:.0f} bytes; as built "
           "{adamap_sram_bytes_recovering_qp_default:.0f}",
           "the same, with an open node and one cached node; as built: with 4 cached nodes (the default), the QP "
           "table, and copies for read ports"),
    Figure("card memory of 10,000 QPs, 5 % of them in recovery", "{adamap_sram_total_10k_qps_5pct:.0f} KiB; as built "
           "{adamap_sram_total_10k_qps_5pct_default:.0f}",
           "each bit once, one cached node per QP in recovery; as above"),
    Figure("blocks leaked, stale nodes or packets accepted", "{adamap_block_leaks:.0f}, {adamap_stale_accepts:.0f}",
           "a million nodes, from first hole to retirement, in the functional model; ten thousand in the RTL"),
    Figure("random and mutated frames that raised, hung, or completed or wrote something invalid",
           "{fuzz_failures:.0f}",
           "a million into two drivers over functional cards, a hundred thousand into two RTL cards"),
    Figure("PCIe faults that lost a tag or credit, hung, or caused wrong bytes", "{pcie_fault_failures:.0f}",
           "ten thousand of 18 kinds into the PCIe subsystem, reads of 1 µs; all kinds, resets, removals, damaged "
           "rings, nodes and page lists over two cards"),
    Figure("goodput of an honest QP under attack", "at least {hostile_goodput_kept_min:.1%}",
           "50 Gb/s honest, 45 Gb/s of one of 12 kinds of attack: unknown peers, earlier incarnations, wrong keys, far "
           "PSNs, forged control frames, noise"),
    Figure("cycles of two cards under random faults, and failures among them",
           "{soak_cycles:,.0f}; {soak_failures:.0f}", "random runs: loss, misbehaving hosts, resets, removals, unknown "
           "peers, wraps, churn, a network with full queues and cuts; presets `test` and `basic`; wrong bytes, "
           "completions, leaks or stalls count"),
    Figure("mutants of the RTL that the tests detect", "{mutants_killed_fraction:.1%}",
           "drawn by rule and seed, each against the tests of its subsystem; equivalent mutants are not counted"),
)
REACH = {figure.subject for figure in FIGURES[:1] + FIGURES[2:4] + FIGURES[7:9] + FIGURES[11:12] + FIGURES[13:14]
         + FIGURES[15:16] + FIGURES[17:18] + FIGURES[19:20]}
SIM_ROWS = ("packets_sent", "packets_lost", "packets_retransmitted", "spurious_retransmissions", "goodput_gbps")
KINDS = {"lut": "LUT", "lutram": "LUT as RAM", "ff": "flip-flops", "srl": "SRL", "carry": "carry", "bram18": "RAMB18",
         "bram36": "RAMB36", "uram": "URAM", "dsp": "DSP"}


def _rows(text):
    """Return the rows of a Markdown table by their first cell."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()[2:]]
    return {row[0].strip("| "): [cell.strip("| ") for cell in row] for row in cells if len(row) == len(HEAD)}


def bench(report, before, figures=FIGURES):
    """Return the table of figures from a report; a row that the report lacks stays as in ``before``."""
    found, old = {row["name"]: row for row in report}, _rows(before)
    rows = [figure.text(found) or figure.kept(old) for figure in figures]
    return table(HEAD, [row for row in rows if row])


def reach(report, before):
    """Return the table of the figures in :data:`REACH`, without their conditions."""
    rows = _rows(bench(report, _with_conditions(before), [figure for figure in FIGURES if figure.subject in REACH]))
    return table(REACH_HEAD, [(row[0], row[1], row[3]) for row in rows.values()])


def _with_conditions(text):
    """Return the table of :func:`reach` with an empty column of conditions."""
    return "\n".join(" | ".join([*line.split(" | ")[:-1], "", line.split(" | ")[-1]]) for line in text.splitlines())


def sim(report, before):
    """Return extracts of the output of ``make sim``; the part stays as it is for a run with other settings."""
    usual = Job(file=str(default_file()), folder="").command
    if report["command"].partition(" sim ")[2] != usual.partition(" sim ")[2]:
        return before.rstrip("\n")

    def shown(value):
        if value is None:
            return "–"
        return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"

    lines = [f"{name.replace('_', ' '):<26}{shown(report[name])}" for name in SIM_ROWS]
    return "\n".join(["```", *lines, "PASSED" if report["ok"] else "FAILED", "```"])


def synth(report, _before):
    """Return the table of the cells of every subsystem."""
    blocks = report["blocks"]
    kinds = [kind for kind in KINDS if blocks[""].get(kind)]
    subsystems = sorted(name for name in blocks if name and "." not in name)
    return f"Preset `{report['preset']}`:\n\n" + table(("", *(KINDS[kind] for kind in kinds)), [
        (f"`{subsystem}`" if subsystem else "**card**",
         *(f"{blocks[subsystem][kind]:,}" for kind in kinds)) for subsystem in (*subsystems, "")])


def _of_preset(report, preset):
    """Return the part of a synthesis report for a preset, or None."""
    return next((each for each in (report, *report.get("others", ())) if each["preset"] == preset), None)


def full(report, before):
    """Return a sentence with the size and the longest path of preset ``full``."""
    found = _of_preset(report, "full")
    if not found:
        return before.rstrip("\n")
    card = found["blocks"][""]
    return (f"All of `full` takes {card['lut']:,} LUT, {card['bram36'] + card['bram18'] / 2:,g} block RAMs of 36 kbit "
            f"and {card['uram']:,}\nUltraRAMs of the 1,344 and 640 of an Alveo U50; its longest path is "
            f"{found['paths']['']['ns']:.2f} ns.")


AREA_PRESET = "basic"
# the others share a column
AREA_SUBSYSTEMS = ("adamap", "endpoint", "rings", "transmit", "receive", "tables", "command")
# Published figures in the rows of the table; designs, chips and tools differ.
PEERS = {"DCP, beside go-back-N": ("+1.7 %", "", "+1.1 %", "300 MHz"),
         "SLAC surf": ("81,168", "113,840", "279.5", "met")}


def area(report, before):
    """Return the table of cells and longest paths of subsystems of preset ``basic``, with figures of other cards."""
    found = _of_preset(report, AREA_PRESET)
    if not found:
        return before.rstrip("\n")
    blocks, paths = found["blocks"], found.get("paths", {})
    rest = [subsystem for subsystem in blocks if subsystem and "." not in subsystem
            and subsystem not in AREA_SUBSYSTEMS]
    columns = {f"`{subsystem}`": ((subsystem,),
                                  paths.get(subsystem)) for subsystem in AREA_SUBSYSTEMS if subsystem in blocks}
    longest = max((paths[subsystem] for subsystem in rest if subsystem in paths), key=lambda path: path["ns"],
                  default=None)
    columns["others"] = rest, longest
    columns["**card**"] = ("",), paths.get("")

    def cells(subsystems, path):
        lut, ff, ram, half, ultra = (sum(blocks[subsystem].get(kind, 0) for subsystem in subsystems)
                                     for kind in ("lut", "ff", "bram36", "bram18", "uram"))
        return (f"{lut:,}", f"{ff:,}", f"{ram + half / 2:,g}" + f" + {ultra} UltraRAM" * bool(ultra),
                f"{path['ns']:.2f} ns" if path else "")

    filled = {name: cells(*column) for name, column in columns.items()} | PEERS
    return table(("", *filled), zip(("LUT", "flip-flops", "block RAM, 36 kbit", "longest path, or clock"),
                                    *filled.values(), strict=True))


REPORT_OF = {"area": "synth", "full": "synth", "reach": "bench"}      # each other part has a report of its name
MAKERS = {"bench": bench, "reach": reach, "sim": sim, "synth": synth, "area": area, "full": full}


def fill(text, reports=REPORTS):
    """Return a document with its measured parts taken from the reports; a part without a report stays as it is."""
    def made(found):
        file = reports / f"{REPORT_OF.get(found[2], found[2])}.json"
        if not file.exists():
            return found[0]
        return found[1] + MAKERS[found[2]](json.loads(file.read_text(encoding="utf-8")), found[3]) + "\n" + found[4]

    return PART.sub(made, text)
