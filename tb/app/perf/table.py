"""Output of a test in perftest's form: a banner, a table, and JSON."""

import math
from collections.abc import Iterable
from typing import Any

from weft.tb.app.perf.plan import Plan

Row = dict[str, float]
RULE = "-" * 87
MIB, GBIT = 0x100000, 125_000_000      # bytes in the units of rates
BANDWIDTH = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]"
LATENCY = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
           "99% percentile[usec]   99.9% percentile[usec] ")


def banner(plan: Plan, about: Iterable[tuple[str, str]]) -> str:
    """Return the description of a test; ``about``: further lines, as (name, value)."""
    rows: list[tuple[str, object]] = [
        ("Dual-port", "OFF"), ("Number of qps", plan.qps), ("Connection type", "RC"), ("Using SRQ", "OFF"),
        ("Transport type", "IB")]
    if plan.is_bandwidth:
        rows += [("TX depth", plan.tx_depth)] + [("Post List", plan.post_list)] * (plan.post_list > 1)
    if plan.verb == "send":
        rows.append(("RX depth", plan.rx_depth))
    if plan.is_bandwidth:
        rows.append(("CQ Moderation", plan.moderation(max(plan.sizes))))
    rows += [("Mtu", f"{plan.mtu}[B]"), ("Link type", "Ethernet"),
             ("Outstand reads", plan.outs) if plan.fetches else ("Max inline data", f"{plan.inline_size}[B]")]
    lines = [RULE, " " * 20 + plan.title]
    if plan.events:
        lines.append(" Test with events.")
    return "\n".join([*lines, *(f" {name:<15} : {value}" for name, value in (*rows, *about)), RULE])


def head(plan: Plan, gbits: bool) -> str:
    """Return the line above the figures."""
    return BANDWIDTH.format("Gb/sec" if gbits else "MiB/sec") if plan.is_bandwidth else LATENCY


def in_units(row: Row, gbits: bool) -> Row:
    """Return a row of figures in the units of the output."""
    unit = GBIT if gbits else MIB
    return {name: value * 1e9 / unit if name.startswith("BW") else value for name, value in row.items()}


def rate(value: float) -> str:
    """Format a bandwidth with two decimals, as perftest does; below 1 with three significant digits, at most six
    decimals."""
    decimals = 2 if not 0 < value < 1 else min(6, 2 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}"


def line(row: Row) -> str:
    """Format a row of :func:`in_units` as text."""
    if "BW_peak" in row:
        return (f" {row['MsgSize']:<7}    {row['n_iterations']:<10}       {rate(row['BW_peak']):<7}            "
                f"{rate(row['BW_average']):<7}             {row['MsgRate']:<7.6f}")
    return (f" {row['MsgSize']:<7} {row['n_iterations']:<11}    " + "   ".join(
        f"{row[name]:<{width}.2f}" for name, width in (
            ("t_min", 11), ("t_max", 10), ("t_typical", 15), ("t_avg", 11), ("t_stdev", 14), ("percentile_99", 20),
            ("percentile_99.9", 20)))).rstrip()


def both_ways(ours: Row, theirs: Row | None) -> Row:
    """Return a row of a bandwidth test in both directions, with added rates."""
    if theirs is None:
        return ours
    return {name: value if name == "MsgSize" else value + theirs[name] for name, value in ours.items()}


def test_info(plan: Plan, about: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the JSON description of a test with perftest's names, and the lines ``about`` in the same form."""
    return {
        "test": plan.title.replace(" ", "_"), "Dual_port": "OFF", "Number_of_qps": plan.qps, "Transport_type": "IB",
        "Connection_type": "RC", "Using_SRQ": "OFF", "TX_depth": plan.tx_depth if plan.is_bandwidth else 1,
        "CQ_Moderation": plan.moderation(max(plan.sizes)), "Mtu": plan.mtu, "Link_type": "Ethernet",
        "Max_inline_data": plan.inline_size, "Outstand_reads": plan.outs,
        **{name.replace(" ", "_"): value for name, value in about}}
