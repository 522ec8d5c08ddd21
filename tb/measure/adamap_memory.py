"""Memory of the Adamap room, from the elaborated design: every memory and register of the netlist, by what it is for.

The room is written as RTLIL for two sizes of each table. A bit that grows with the number of QPs belongs to every QP;
one that grows with the places of the builder or the entries of the cache belongs to a QP that recovers; what grows with
none is fixed. So nothing is counted by a formula, and nothing is forgotten that the room holds (its queues and pipeline
registers are the fixed part). Copies of a memory that an FPGA needs for further read ports are not counted.

The first three figures and the fixed part count memories and registers alike:

- ``adamap_sram_bytes_per_qp``: window row, posted values, list state, list head, work list: what a QP occupies whether
  or not it recovers, with a window of 128 bits.
- ``adamap_sram_bytes_recovering_qp``: that, one place of the builder and one entry of the cache.
- ``adamap_sram_total_10k_qps_5pct``: 10 000 QPs, of which 5 % recover at one time, and the fixed part.
- ``adamap_sram_fixed``: what does not grow.

What they consist of, per QP, per place of the builder and per entry of the cache: ``adamap_sram_per_...``, one row for
each memory, and ``adamap_registers_per_...``, one row for the registers of each block. A place is an open node in its
encoding with its counters (tag, age and rank of the place are registers); an entry is a node as it was fetched, one bit
for each of 64 holes, how many are open, and the block it lies in (its tag is registers).
"""

import re
from collections import Counter
from dataclasses import replace

from amaranth.back import rtlil

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.params import preset
from weft.tb.measure.benchmark import Row

BASE = replace(preset("test"), qps=1024, window_bits=128, builder_slots=8, cache_entries=16, prefetch_depth_max=16)
QPS, RECOVERING = 10_000, 0.05
MEMORY = re.compile(r"^\s*memory width (\d+) size (\d+) (\S+)$")
MODULE = re.compile(r"^module (\S+)$")
FLIP_FLOP = re.compile(r"^\s*cell \$(?:s?a?dffe?|sdffe?|sdffce|adffe?) ")
WIDTH = re.compile(r"^\s*parameter \\WIDTH (\d+)$")


def storage(params):
    """Bits by module and kind: ``{(module, memory or None): bits}``."""
    bits, module, flip_flop = Counter(), None, False
    for line in rtlil.convert(Adamap(params)).splitlines():
        if found := MODULE.match(line):
            module = re.sub(r"\$\d+", "", found[1].lstrip("\\").removeprefix("top."))
        elif found := MEMORY.match(line):
            bits[module, re.sub(r"\$\d+", "", found[3].lstrip("\\"))] += int(found[1]) * int(found[2])
        elif FLIP_FLOP.match(line):
            flip_flop = True
        elif flip_flop and (found := WIDTH.match(line)):
            bits[module, None] += int(found[1])
            flip_flop = False
    return bits


def growth(before, name):
    """Bits per unit of one parameter, by module and memory: the difference of two elaborations."""
    units = getattr(BASE, name)
    after = storage(replace(BASE, **{name: 2 * units}))
    return {key: (after[key] - before[key]) / units for key in after if after[key] != before[key]}


def measure(_progress=None):
    """Rows: the three figures, then what they consist of."""
    base = storage(BASE)
    per_qp, per_place, per_entry = (growth(base, name) for name in ("qps", "builder_slots", "cache_entries"))
    qp, place, entry = (sum(part.values()) / 8 for part in (per_qp, per_place, per_entry))
    everything = sum(base.values()) / 8
    fixed = everything - qp * BASE.qps - place * BASE.builder_slots - entry * BASE.cache_entries
    total = QPS * qp + QPS * RECOVERING * (place + entry) + fixed
    rows = [
        Row("adamap_sram_bytes_per_qp", "B", qp, at_most=32),
        Row("adamap_sram_bytes_recovering_qp", "B", qp + place + entry, at_most=160),
        Row("adamap_sram_total_10k_qps_5pct", "KiB", total / 1024, at_most=640),
        Row("adamap_sram_fixed", "B", fixed),
    ]
    for unit, parts in (("per_qp", per_qp), ("per_builder_place", per_place), ("per_cache_entry", per_entry)):
        for (module, memory), bits in sorted(parts.items(), key=str):
            kind, suffix = ("sram", f"_{memory}") if memory else ("registers", "")
            if bits >= 1:
                rows.append(Row(f"adamap_{kind}_{unit}_{module.replace('.', '_')}{suffix}", "B", bits / 8))
    return rows
