"""``weft conformance``: the conformance suite for a device, or for the back ends of `weft serve`."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import BadSetting, Setting
from weft.tb.app.serve.environment import BUILD_ROOT
from weft.tb.app.serve.settings import WITHOUT_HARDWARE
from weft.tb.cli.failures import fail
from weft.tb.cli.options import refuse

REPORT = "reports/conformance.json"
GID_MAX = 255       # the largest index that an address can name


def conformance(
    device: Annotated[str, Setting("Name of a libibverbs device.", metavar="NAME",
                                   default_text="none: each back end is served")] = "",
    peer: Annotated[str, Setting("Name of another device, or of another host of `weft serve`.", metavar="NAME",
                                 default_text="the device")] = "",
    gid: Annotated[int | None, Setting("With a device: index of the GID at both ends.", least=0, most=GID_MAX,
                                       metavar="INDEX",
                                       default_text="that of an IPv4 address, of RoCEv2 if there is one")] = None,
    backend: Annotated[list[str] | None, Setting("Without a device: this back end alone; may be given several times.",
                                                 choices=WITHOUT_HARDWARE)] = None,
    only: Annotated[list[str] | None, Setting("Cases with this in their name, or of this subject; may be given several "
                                              "times.", metavar="NAME")] = None,
    names: Annotated[bool, Setting("Name the cases with their rules and end.", names=("--list",))] = False,
    json: Annotated[Path | None, Setting("File for the results.", metavar="PATH",
                                         default_text=f"sim_build/{REPORT}")] = None,
):
    """Test a libibverbs device against the rules of the specification: see docs/conformance.md."""
    from weft.driver.ibverbs.build import CannotBuild
    from weft.tb.verify.conformance.c_suite import cases
    from weft.tb.verify.conformance.devices import NO_DEVICE, SuiteFailed, on_backends, on_device, save
    from weft.tb.verify.programs.session import CannotServe
    chosen = [case for case in cases() if not only or any(one in case.name or one == case.subject for one in only)]
    if not chosen:
        raise BadSetting("only", " ".join(only), "no case has such a name or subject; --list names them")
    if names:
        print("\n".join(f"{case.subject:17} {case.name}: {case.rule}" for case in chosen))
        raise typer.Exit(0)
    if device and backend:
        refuse("--backend serves cards and --device names one; give one of them")
    if (peer or gid is not None) and not device:
        refuse(f"{'--peer' if peer else '--gid'} needs --device")
    signal.signal(signal.SIGTERM, signal.default_int_handler)      # the daemon and the suite end with this process
    file = json or BUILD_ROOT / REPORT
    file.parent.mkdir(parents=True, exist_ok=True)
    file.open("a").close()      # a long run must not end with a file that cannot be written
    try:
        if device:
            status, result = on_device(BUILD_ROOT, device, peer, only or (), gid)
            results = [result]
        else:
            status, results = on_backends(BUILD_ROOT, backend or (), only or ())
    except (CannotBuild, CannotServe, SuiteFailed) as problem:
        fail(str(problem))
    if status == NO_DEVICE:
        raise typer.Exit(NO_DEVICE)
    save(results, file)
    raise typer.Exit(status)
