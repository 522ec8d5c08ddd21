"""Tests of the library's verbs by C programs: threads, capacities, bounds of regions, polls without result."""

import re
import time
from pathlib import Path

import pytest

from weft.driver.ibverbs.build import build, missing
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.figures import processor_ns
from weft.tb.verify.programs.session import serving

HERE = Path(__file__).parent
COMPLETIONS, POLLS_S, CORE = 8_000, 2, 0.05
# Duration and processor time of polls, relative to naps of a millisecond at the same time. On an idle machine that is
# 5 us and 5 % of a core, the bars of the benchmark.
EACH, PART = 1.35, 2
REGIONS, REGION_STEPS = 5_000, 35_000     # processor time of a region, in iterations of an empty loop


@pytest.fixture(scope="module")
def session():
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)
    with serving() as session:
        yield session


def run(session, name, folder, *arguments):
    """Build and run a program on host a; return its output."""
    ended = session.run("a", str(compiled(name, folder, build(LIBRARY_FOLDER))), *arguments, limit_s=120)
    assert ended.status == 0, ended.output
    return ended.output


def test_threads_that_share_an_extended_queue_see_each_completion_once(session, tmp_path):
    assert f"{COMPLETIONS} completions, 0 seen twice" in run(session, HERE / "readers", tmp_path, str(COMPLETIONS))


def test_capacities_are_kept_ignored_or_refused(session, tmp_path):
    run(session, HERE / "capacities", tmp_path)


def test_accesses_that_leave_a_region_change_nothing_outside(session, tmp_path):
    run(session, HERE / "bounds", tmp_path, str(session.socket("b")))


def test_changes_of_a_region_follow_the_manual(session, tmp_path):
    assert run(session, "regions", tmp_path, "changes") == "good\n"


def test_thousands_of_regions_take_few_resources(session, tmp_path):
    before = processor_ns(session.process.pid)
    assert run(session, "regions", tmp_path, "many", str(REGIONS)).endswith(" s\ngood\n")
    each_ns = (processor_ns(session.process.pid) - before) / REGIONS
    began = time.process_time_ns()
    for _ in range(10**6):
        pass
    step_ns = (time.process_time_ns() - began) / 10**6      # it follows the speed of a machine, and of a busy one
    assert each_ns <= REGION_STEPS * step_ns, f"{each_ns} ns of the processor for each region, {step_ns} ns for a step"


def test_polls_without_result_are_cheap_and_leave_the_processor(session, tmp_path):
    marks = [processor_ns(session.process.pid)]
    for seconds in 0, POLLS_S:      # the first run shows what the connection takes
        messages = run(session, "post_poll", tmp_path, "spin", str(seconds))
        marks.append(processor_ns(session.process.pid))
    of_daemon = (marks[2] - marks[1] - (marks[1] - marks[0])) / (POLLS_S * 1e9)
    part, each, part_alone, each_alone = map(float, re.findall(r"(?:part|each) ([\d.]+)", messages))
    assert each <= EACH * each_alone and part <= PART * part_alone and of_daemon <= CORE, (messages, of_daemon)
