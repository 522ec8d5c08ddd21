"""Benchmark type, and all benchmarks by name."""

import importlib
from dataclasses import dataclass, replace

HERE = "weft.tb.verify.bench"


@dataclass(frozen=True)
class Benchmark:
    """Function that measures: ``function(progress)`` of a module returns rows.

    Meanwhile it may append JSON lines ``{"phase", "done", "total"}`` to the file ``progress``.
    """

    about: str                      # description in one sentence
    module: str                     # name below `HERE` or, with a dot, below `weft.tb`
    function: str = "measure"
    conditions: str = ""            # of every row that has none

    def measure(self, progress):
        """Run the benchmark; return its rows, each with its conditions."""
        return [replace(row, conditions=row.conditions or self.conditions) for row in self._rows(progress)]

    def _rows(self, progress):
        module = f"weft.tb.{self.module}" if "." in self.module else f"{HERE}.{self.module}"
        return getattr(importlib.import_module(module), self.function)(progress)


# Common conditions of the benchmarks of two cards.
CARDS = ("two cards of preset test with 100 Gb/s between them, hosts that answer a read in 1 µs (±10 %), a cable "
         "without length, and a driver that takes no time")
WIDE_AREA = "packet-level model, seed 1, no congestion control, a return path without loss"

BENCHMARKS = {
    "line-rate": Benchmark("Payload rates of two cards at 100 Gb/s, both directions at once and one alone.",
                           "line_rate", conditions=CARDS),
    "latency": Benchmark("Latencies of a small write.", "latency",
                         conditions=f"{CARDS}; a write of 64 bytes with an immediate, one at a time, median of 5"),
    "verbs": Benchmark("Payload rates of sends and reads, how QPs share the line, and the time of the driver.", "verbs",
                       conditions=CARDS),
    "soft": Benchmark("RDMA in software over the Simple NIC beside the card's own writes: latency, goodput, processor.",
                      "soft", conditions="two functional cards, 100 Gb/s, 1 µs one way, packets of 4 KiB, nothing lost;"
                                         " hosts take the time that this machine's processor takes for their work"),
    "message-rate": Benchmark("Register accesses per message, and messages per second of 64 bytes.", "message_rate",
                              conditions=CARDS),
    "adamap-match": Benchmark("Interval and latency of matching a retransmission, for every kind of list.",
                              "adamap_match", conditions="the Adamap subsystem alone, reads of host memory in 1 µs"),
    "adamap-stall": Benchmark("How often a retransmission waits for its node, by losses, cache depth and read latency.",
                              "adamap_stall", conditions="the Adamap subsystem alone, packets of 1 KiB at 100 Gb/s"),
    "adamap-memory": Benchmark("On-card memory of the Adamap subsystem, from the elaborated design.", "adamap_memory",
                               conditions="memories and registers of the netlist, by what they grow with"),
    "pool": Benchmark("Goodput with too few knitting blocks, on functional cards.", "small_pools",
                      conditions="functional cards, 3 MB over 2 QPs, PMTU 256, 10 % loss, delay 100 µs one way"),
    "churn": Benchmark("Node churn: leaked blocks and stale accepts, in the functional model and in the RTL.",
                       "verify.churn.figures",
                       conditions="QPs that are created and destroyed, late or lost reports and retransmissions"),
    "fuzz": Benchmark("Random and mutated frames: exceptions, hangs, wrong completions and wrong writes.",
                      "verify.fuzz.figures",
                      conditions="an honest pair of QPs beside a pair of victims, frames for both hosts"),
    "hostile": Benchmark("Goodput of an honest transfer at 50 Gb/s under attacks at 45 Gb/s, and remaining state.",
                         "hostile", conditions=f"{CARDS}; one way, PMTU 1024, 8 messages of 16 KiB in flight"),
    "serve": Benchmark("Served programs: post and poll, waiting and idling; fuzzed messages, overlapping "
                       "registrations, programs that are terminated.", "verify.programs.figures",
                       conditions="functional cards of preset test, this machine's processor"),
    "serve-speed": Benchmark("Served programs on the direct back end, beside memcpy and TCP over loopback.",
                             "serve_speed", conditions="unmodified perftest; medians"),
    "serve-accuracy": Benchmark("Figures of unmodified programs on served RTL in simulated time, and of benchmarks.",
                             "serve_accuracy", conditions=CARDS),
    "linux": Benchmark("A Linux guest of QEMU with a card: registers, interrupts, pages pinned per second.",
                       "verify.linux.figures", conditions="functional card, QEMU without KVM, program in Python in the "
                       "guest, this machine's processor; medians"),
    "linux-hostile": Benchmark("Hostile machines: random messages, descriptors and registers, memory taken away, "
                               "processes killed; and the traffic of the other hosts.", "verify.linux.hostile",
                               conditions="functional cards of preset test"),
    "pcie-faults": Benchmark("Faults of a PCIe host by kind, and their effects.", "verify.soak.pcie_faults",
                             conditions="PCIe subsystem alone, reads in 900 to 1100 ns, 60 % of the memory answers "
                                        "badly; and two cards under their drivers: payload, ring entries, nodes and "
                                        "page lists that are damaged or unreadable, cards that are reset, cut off or "
                                        "pulled out; lost tags, credits or blocks, hangs, wrong bytes, errors without "
                                        "a fault"),
    "soak": Benchmark("Random runs of two cards under faults of every kind.", "verify.soak.report",
                      conditions="clock cycles of two real cards, presets test and basic; runs by seed, each with its "
                                 "own path MTUs, churn, losses, faults and resets; finished runs are cached"),
    "model": Benchmark("Wide-area experiments: goodput, rivals, bursts, outages, many QPs.", "wide_area",
                       conditions=WIDE_AREA),
    "model-completion": Benchmark("Wide-area experiments: how long transfers take, on average and at worst.",
                                  "wide_area_long", "completion", conditions=WIDE_AREA),
    "model-wraps": Benchmark("Wide-area experiments: several wraps of the PSNs, and paths where PSNs are the limit.",
                             "wide_area_long", "wraps", conditions=WIDE_AREA),
    "network": Benchmark("Flows that share a network: goodput, queues, losses and fairness of congestion control.",
                         "network", "measure_all",
                         conditions="packet-level model, seed 1, paced flows that always have data, one path each"),
    "network-ns3": Benchmark("The simulated network and DCQCN beside a second implementation in ns-3.", "ns3_dcqcn",
                             conditions="packet-level model and ns-3, seed 1"),
    "model-ns3": Benchmark("How fast the wide-area experiments are beside ns-3.", "ns3",
                           conditions="packet-level model and ns-3, this machine's processor"),
    "model-card": Benchmark("Speed of the timing model under the real driver, and compared with the gateware.",
                            "model_card", "speed",
                            conditions="two cards of preset test in the model, this machine's processor"),
    "model-driver": Benchmark("Goodput of the real driver over a long lossy path, on timed cards.",
                              "model_card", "driver",
                              conditions="two cards in the model, 100 Gb/s, 30 ms, 1 % lost"),
    "card-bytes": Benchmark("The card memory that wide-area experiments count against the elaborated design.",
                            "wide_area_long", "card_memory",
                            conditions="memories and registers of the netlist"),
    "synth": Benchmark("Size and longest paths on an FPGA, estimated by block, and by place and route on another one.",
                       "sim.synth.figures", conditions="presets basic and full; not run through a vendor's tools"),
    "simulation": Benchmark("How fast simulation is.", "simulation",
                            conditions="wall clock of this machine, one run; two idle cards of preset test, Verilator"),
}
