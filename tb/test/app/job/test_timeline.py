"""Tests of the timeline of a run: the Trace Event Format, and completeness."""

import json
from collections import Counter

from weft.tb.test.app.job.test_timed_job import run_model


def check(path, report):
    """Check the timeline of a run with this report."""
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] == "ns"
    names = {}
    for event in trace["traceEvents"]:
        assert event.keys() >= {"name", "ph", "pid", "tid", "args"} and event["ph"] in "XiM"
        if event["ph"] == "M":
            names[event["name"], event["pid"], event["tid"]] = event["args"]["name"]
        else:
            assert event["ts"] >= 0 and (event["ph"] == "i" or event["dur"] >= 0)
    processes = {pid: name for (kind, pid, _), name in names.items() if kind == "process_name"}
    tracks = {(pid, tid): (processes[pid], name) for (kind, pid, tid), name in names.items() if kind == "thread_name"}
    found = Counter((*tracks[event["pid"], event["tid"]], event["name"].partition(" ")[0])
                    for event in trace["traceEvents"] if event["ph"] != "M")
    for direction, counters in report["link"].items():
        for track, outcome in (("line", "sent"), ("lost", "lost"), ("arrived", "delivered")):
            drawn = sum(n for (process, name, _), n in found.items() if (process, name) == (f"link {direction}", track))
            assert drawn == counters[outcome]["all"]
    assert found["link a_to_b", "lost", "WRITE_ONLY"]
    assert found["host b", "card to memory", "report"] == report["counters"]["b"]["reports"]
    for side in "ab":
        assert found[f"host {side}", "driver", "wait"] and found[f"host {side}", "driver", "interrupt"]
        assert found[f"host {side}", "driver", "write"]


def test_timeline_of_a_model_run(tmp_path):
    report = run_model(tmp_path, 50_000, loss=0.1, timeline=True)
    assert report["ok"]
    check(tmp_path / "timeline.json", report)
