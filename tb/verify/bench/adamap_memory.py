"""Memory of the Adamap subsystem, from the elaborated design: every memory and register of the netlist, by purpose.

The subsystem is elaborated for two sizes of each of its three tables. A bit that grows with the number of QPs belongs
to every QP. A bit that grows with the open nodes of the builder or the entries of the cache belongs to a QP in
recovery. The remaining bits, among them queues and pipeline registers, are fixed.

**Content** counts each bit once, as in the subsystem alone, with a window of 128 bits: a QP, in recovery or not (window
row, posted values, list state, list head, work list); a QP in recovery, with one open node of the builder and one entry
of the cache; 10 000 QPs, of which 5 % recover at the same time, with the fixed part. The parts per QP, per open node of
the builder (``place``) and per entry of the cache are ``adamap_sram_per_...``, one row for each memory, and
``adamap_registers_per_...``, one row for the registers of each block. ``qp_table_...`` is an entry of the QP table and
its fields, outside the subsystem.

**Cost in an FPGA** (``..._default``) adds a copy of each memory for every read port after the first, the QP table with
its read ports, and the cache entries that a QP in recovery uses at the default prefetch depth. Suffixes name presets;
the figure without a suffix is that of the preset with the largest value.
"""

from dataclasses import replace

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.contract import abi
from weft.hdl.contract.params import PRESETS, preset
from weft.hdl.part.layouts import qp_entry
from weft.hdl.table.kinds import QP_STATES, QP_TABLE
from weft.hdl.table.tables import QP_READERS, STATE_READERS
from weft.tb.sim.flow.figures import Row
from weft.tb.verify.bench.storage import storage

BASE = replace(preset("test"), qps=1024, window_bits=128, builder_slots=8, cache_entries=16, prefetch_depth_max=16)
QPS, RECOVERING = 10_000, 0.05
TABLES = ("qps", "builder_slots", "cache_entries")
DEPTH = abi.REGISTER["prefetch_depth"].reset
CONTENT = "each bit counted once: no copies for read ports, no QP table, one cached node per recovering QP"


def qp_table(params, *, readers):
    """Return the QP table of the card."""
    return QP_TABLE.memory(params, readers=readers)


def qp_states(params, *, readers):
    """Return the part of the QP table that most readers use."""
    return QP_STATES.memory(params, readers=readers)


def growth(params, name, to, *, copies=False):
    """Return ``{(module, memory): bits}`` per unit of parameter ``name``, from its value in ``params`` to ``to``."""
    units = to - getattr(params, name)
    at, beside = (storage(Adamap, each, copies=copies) for each in (params, replace(params, **{name: to})))
    return {key: (beside[key] - at[key]) / units for key in at | beside if beside[key] != at[key]}


def content_rows():
    """Return the rows of the subsystem alone, with each bit counted once."""
    per_qp, per_place, per_entry = (growth(BASE, name, 2 * getattr(BASE, name)) for name in TABLES)
    qp, place, entry = (sum(part.values()) / 8 for part in (per_qp, per_place, per_entry))
    fixed = storage(Adamap, BASE).total() / 8 - qp * BASE.qps - place * BASE.builder_slots - entry * BASE.cache_entries
    rows = [
        Row("adamap_sram_bytes_per_qp", "B", qp, at_most=32),
        Row("adamap_sram_bytes_recovering_qp", "B", qp + place + entry, at_most=160),
        Row("adamap_sram_total_10k_qps_5pct", "KiB", _total_kib(qp, place + entry, fixed), at_most=640),
        Row("adamap_sram_fixed", "B", fixed),
    ]
    for unit, parts in (("per_qp", per_qp), ("per_builder_place", per_place), ("per_cache_entry", per_entry)):
        for (module, memory), bits in sorted(parts.items(), key=str):
            kind, suffix = ("sram", f"_{memory}") if memory else ("registers", "")
            if bits >= 1:
                rows.append(Row(f"adamap_{kind}_{unit}_{module.replace('.', '_')}{suffix}", "B", bits / 8))
    return [replace(row, conditions=CONTENT) for row in rows]


def table_rows():
    """Return the rows of a QP's entry in the QP table; the subsystem and the receive path keep no copy of it."""
    fields = [(name, shape.shape.width) for name, shape in qp_entry(BASE)]
    whole = Row("qp_table_bytes_per_qp", "B", sum(bits for _, bits in fields) / 8)
    rows = [whole, *(Row(f"qp_table_bits_per_qp_{name}", "bit", bits) for name, bits in fields)]
    return [replace(row, conditions=f"an entry on a card of {BASE.qps} QPs, once") for row in rows]


def default_rows(card):
    """Return the rows of the cost in an FPGA for a preset."""
    built = preset(card)
    table = sum(storage(memory, built, copies=True, readers=readers).total()
                for memory, readers in ((qp_table, QP_READERS), (qp_states, STATE_READERS))) / 8
    whole = storage(Adamap, built, copies=True).total() / 8
    # The part of a QP does not depend on the number of QPs, and fewer QPs are elaborated faster.
    few = replace(built, qps=BASE.qps)
    qp, place, entry = (sum(growth(few, name, getattr(few, name) // 2, copies=True).values()) / 8 for name in TABLES)
    fixed = whole - qp * built.qps - place * built.builder_slots - entry * built.cache_entries
    qp += table / built.qps
    recovers = place + DEPTH * entry
    conditions = (f"subsystem and QP table of preset {card} with copies for read ports; a QP that recovers takes a "
                  f"place of the builder and {DEPTH} cache entries (the default prefetch depth)")
    rows = [
        Row("adamap_sram_bytes_per_qp_default", "B", qp),
        Row("adamap_sram_bytes_recovering_qp_default", "B", qp + recovers),
        Row("adamap_sram_total_10k_qps_5pct_default", "KiB", _total_kib(qp, recovers, fixed)),
        Row("adamap_sram_built", "KiB", (whole + table) / 1024),
    ]
    return [replace(row, conditions=conditions) for row in rows]


def _total_kib(per_qp, recovers, fixed):
    return (QPS * per_qp + QPS * RECOVERING * recovers + fixed) / 1024


def measure(_progress=None):
    """Return the rows: cost in FPGAs, then the content and its parts."""
    by_card = {card: default_rows(card) for card in PRESETS}
    most = max(by_card.values(), key=lambda rows: rows[1].value)
    per_card = [replace(row, name=f"{row.name}_{card}") for card, rows in by_card.items() for row in rows]
    return [*most[:3], *per_card, *content_rows(), *table_rows()]
