"""``weft calibrate``: run all scenarios on gateware, timing model and functional cards; compare the first two.

The comparison is printed as a table. A run of all scenarios also writes the report and the figures.
"""

import json
import sys

from rich.markup import escape
from rich.progress import track

from weft.tb.sim.flow.figures import Row, merge_report, output, plain_table
from weft.tb.sim.flow.tools import write_whole
from weft.tb.sim.scenario.compare import COMMAND, PACED_MAX, REPORT, STALL_MAX, TIME_MAX, Comparison, worst
from weft.tb.sim.scenario.runs import Gateware, run_functional, run_model
from weft.tb.sim.scenario.scenario import ALL

SCENARIOS_MIN = 60
FILE_WIDTH = 110
CONDITIONS = ("two cards of preset test, the same traffic and losses on the gateware and in the model; of the "
              "scenarios that were not used to choose the model's constants")


def run(only=(), scenarios=ALL):
    """Run the scenarios whose names begin with one of ``only``, or all; return the exit status.

    It is 1 if a limit is missed or a scenario had a problem, 2 if no scenario matches. A scenario that already ran on
    the gateware is not simulated again. Report and figures are written only if ``only`` is empty.
    """
    console = output(FILE_WIDTH)
    chosen = [scenario for scenario in scenarios if not only or scenario.name.startswith(tuple(only))]
    if not chosen:
        print(f"weft: no scenario begins with {' or '.join(only)}; the first ones are "
              f"{', '.join(scenario.name for scenario in scenarios[:5])}", file=sys.stderr)
        return 2
    with console.status("Elaborating the card"):
        gateware = Gateware()
    found = []
    for scenario in track(chosen, "running scenarios", console=console, transient=True,
                          disable=not console.is_terminal):
        found.append(Comparison(scenario, gateware.run(scenario), run_model(scenario), run_functional(scenario)))
    show(console, found)
    if not only:
        write_whole(REPORT, json.dumps([one.as_dict() for one in found], indent=1) + "\n")
        merge_report(rows(found), COMMAND, whole=True)
        console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    return _verdict(found)


def rows(found):
    """Return the figures of the comparisons."""
    count, time, stall, paced, mismatches = worst(found)
    return [
        Row("calibration_scenarios", "scenarios", count, at_least=SCENARIOS_MIN, conditions=CONDITIONS),
        Row("calibration_time_error_max", "of the gateware's", time, at_most=TIME_MAX, conditions=CONDITIONS),
        Row("calibration_stall_error_max", "of the gateware's", stall, at_most=STALL_MAX, conditions=CONDITIONS),
        Row("calibration_paced_error_max", "of the gateware's", paced, at_most=PACED_MAX, conditions=CONDITIONS),
        Row("calibration_sequence_mismatches", "sequences", mismatches, at_most=0, conditions=CONDITIONS),
    ]


def show(console, found):
    """Print the comparison of gateware and model."""
    text = ("scenario", "", "sequences that differ")
    table = plain_table(*text[:2], "gateware", "model", "error", "stalls", "model", "error", "paced", text[2],
                        left=text)
    for one in found:
        bad = abs(one.time_error) > TIME_MAX, abs(one.stall_error) > STALL_MAX
        table.add_row(
            one.scenario.name, "judges" if one.scenario.judges else "chosen by",
            f"{one.gateware['cycles']:,.0f}", f"{one.model['cycles']:,.0f}", _share(one.time_error, bad[0]),
            f"{one.gateware['stall_cycles']:,}", f"{one.model['stall_cycles']:,}",
            _share(one.stall_error, bad[1]) if one.stall_error else "",
            _share(one.paced_error, one.paced_error > PACED_MAX) if one.gateware["paced_ns"] else "",
            f"[red]{escape(', '.join(one.mismatches))}[/]" if one.mismatches else "")
        for problem in one.problems:
            table.add_row(f"[red]{escape(problem)}[/]")
    console.print(table)


def _share(value, bad):
    text = f"{100 * value:+.2f} %"
    return f"[red]{text}[/]" if bad else text


def _verdict(found):
    """Return the exit status, and print a sentence for each limit that is missed."""
    missed = [row for row in rows(found) if row.missed and row.name != "calibration_scenarios"]
    for row in missed:
        print(f"weft: {row.name} is {row.value:.4g}; the bar is {row.bar}", file=sys.stderr)
    wrong = [one.scenario.name for one in found if one.problems]
    if wrong:
        print(f"weft: something went wrong in {', '.join(wrong)}", file=sys.stderr)
    return 1 if missed or wrong else 0
