"""``weft conformance``: the conformance suite for a device, or for the back ends of `weft serve`."""

from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import BadSetting, Setting
from weft.tb.app.serve.environment import BUILD_ROOT
from weft.tb.app.serve.settings import BACKENDS
from weft.tb.cli.failures import fail
from weft.tb.cli.options import refuse

REPORT = "reports/conformance.json"


def conformance(
    device: Annotated[str, Setting("Name of a libibverbs device.", metavar="NAME",
                                   default_text="none: each back end is served")] = "",
    peer: Annotated[str, Setting("Name of another device, or of another host of `weft serve`.", metavar="NAME",
                                 default_text="the device")] = "",
    backend: Annotated[list[str] | None, Setting("Without a device: this back end alone; may be given several times.",
                                                 choices=BACKENDS)] = None,
    only: Annotated[list[str] | None, Setting("Cases with this in their name, or of this subject; may be given several "
                                              "times.", metavar="NAME")] = None,
    names: Annotated[bool, Setting("Name the cases with their rules and end.", names=("--list",))] = False,
    json: Annotated[Path | None, Setting("File for the results.", metavar="PATH",
                                         default_text=f"sim_build/{REPORT}")] = None,
):
    """Test a libibverbs device against the rules of the specification: see docs/conformance.md."""
    from weft.driver.ibverbs.build import CannotBuild
    from weft.tb.verify.conformance.c_suite import cases
    from weft.tb.verify.conformance.devices import NO_DEVICE, on_backends, on_device, save
    from weft.tb.verify.programs.session import CannotServe
    chosen = [case for case in cases() if not only or any(one in case.name or one == case.subject for one in only)]
    if not chosen:
        raise BadSetting("only", " ".join(only), "no case has such a name or subject; --list names them")
    if names:
        print("\n".join(f"{case.subject:17} {case.name}: {case.rule}" for case in chosen))
        raise typer.Exit(0)
    if device and backend:
        refuse("--backend serves cards and --device names one; give one of them")
    if peer and not device:
        refuse("--peer needs --device")
    try:
        if device:
            status, result = on_device(BUILD_ROOT, device, peer, only or ())
            results = [result]
        else:
            status, results = on_backends(BUILD_ROOT, backend or (), only or ())
    except (CannotBuild, CannotServe) as problem:
        fail(str(problem) or "the daemon has not started in a minute; is the machine busy?")
    if status == NO_DEVICE:
        raise typer.Exit(NO_DEVICE)
    save(results, json or BUILD_ROOT / REPORT)
    raise typer.Exit(status)
