"""``weft write_bw``, ``write_lat`` and so on: tests in the form of linux-rdma's perftest, with its options."""

from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import Setting
from weft.tb.app.perf.options import Options
from weft.tb.app.stage.stage import BACKEND, Stage
from weft.tb.cli.options import refuse, typed_command

ABOUT = {
    "write_bw": "Bandwidth of RDMA WRITE between two cards, as perftest's ib_write_bw.",
    "write_lat": "Latency of RDMA WRITE, half of a round trip between two programs, as perftest's ib_write_lat.",
    "send_bw": "Bandwidth of SEND between two cards, as perftest's ib_send_bw.",
    "send_lat": "Latency of SEND, half of a round trip between two programs, as perftest's ib_send_lat.",
    "read_bw": "Bandwidth of RDMA READ between two cards, as perftest's ib_read_bw.",
    "read_lat": "Latency of RDMA READ, as perftest's ib_read_lat.",
    "atomic_bw": "Rate of atomics between two cards, as perftest's ib_atomic_bw.",
    "atomic_lat": "Latency of an atomic, as perftest's ib_atomic_lat.",
}
PANEL = "Measuring, as perftest does"


def command(name):
    """Return the command of one test."""
    def run(
        options: Options,
        stage: Stage,
        report_gbits: Annotated[bool, Setting("Rates in Gb/sec instead of MiB/sec.",
                                              names=("--report_gbits",))] = False,
        out_json: Annotated[bool, Setting("Leave JSON, too.", names=("--out_json",))] = False,
        out_json_file: Annotated[Path, Setting("File of the JSON.", names=("--out_json_file",), metavar="PATH")] = Path(
            "perftest_out.json"),
        backend: Annotated[str, BACKEND] = "functional",
    ):
        plan = options.plan(name, backend, stage)
        if out_json and not out_json_file.parent.is_dir():
            refuse(f"--out_json_file is {str(out_json_file)!r}, but {str(out_json_file.parent)!r} is not a folder")
        from weft.tb.app.perf.run import run as measure
        raise typer.Exit(measure(plan, backend, stage, gbits=report_gbits,
                                 out_json=out_json_file if out_json else None, command=typed_command()))

    run.__name__, run.__doc__ = name, ABOUT[name]
    return run


COMMANDS = tuple(map(command, ABOUT))
