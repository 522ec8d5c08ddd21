"""``weft devinfo``, ``counters``: attributes and counters of a card."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from weft.model.settings import PRESET, BadSetting, Setting, fields, readable_file
from weft.tb.app.serve.settings import pci_addresses
from weft.tb.app.stage.stage import BACKEND, Stage, play
from weft.tb.cli.options import refuse

DEVICES = Setting("PCI addresses of cards of this machine, with commas between, instead of simulated cards; `weft "
                  "devices` lists them.", read=pci_addresses, metavar="ADDRESSES", default_text="none")
CARDS_MAX = 2


def devinfo(
    verbose: Annotated[bool, Setting("Everything there is to know.", names=("-v", "--verbose"))] = False,
    device: Annotated[Sequence[str], DEVICES] = (),
    backend: Annotated[str, BACKEND] = "functional",
    preset: Annotated[str, PRESET] = "test",
):
    """Show a card and its port in the form of ibv_devinfo."""
    from weft.tb.app.device import devinfo as tool
    if device:
        _check_hardware(backend=(backend, "functional"), preset=(preset, "test"))
        from weft.tb.app.device.hardware import devinfos
        found = devinfos(device)
    else:
        found = play((tool.query, tool.rest), backend=backend, stage=Stage(preset=preset))[:1]
    for number, one in enumerate(found):
        print(tool.text(one, verbose=verbose, name=f"weft{number}"))


def counters(
    stage: Stage,
    report: Annotated[Path | None, Setting("Show the counters of the run that left this report; weft sim leaves "
                                           "sim_build/reports/sim.json.", read=readable_file, metavar="PATH")] = None,
    messages: Annotated[int, Setting("Without a report: writes, sends, reads and atomics of a short run, each.",
                                     least=1, most=1000)] = 20,
    device: Annotated[Sequence[str], DEVICES] = (),
    backend: Annotated[str, BACKEND] = "functional",
):
    """Show counters of both cards after a run, with the names of rdma statistic and of ethtool -S.

    Two cards of --device run it over the link between them. One card sends as many frames to its own address.
    """
    from weft.tb.app.device import counters as tool
    if device:
        sides = _of_hardware(device, stage, report, messages, backend)
    elif report is not None:
        try:
            sides = tool.of_report(report).values()
        except tool.BadReport as error:
            refuse(str(error))
    else:
        sides = _of_short_run(stage, messages, backend)
    for number, side in enumerate(sides):
        print(tool.text(f"weft{number}", side))


def _of_short_run(stage, messages, backend):
    """Return the counters of simulated cards after a short run."""
    from weft.tb.app.device import short_run
    from weft.tb.app.stage.host import PeerFailed, ProgramFailed
    from weft.tb.sim.flow.failure import Failure
    from weft.tb.sim.pair.settings import timeout
    try:
        return play((short_run.program, short_run.program), backend=backend, stage=stage, messages=messages,
                    timeout=timeout(stage.rtt_us))
    except (ProgramFailed, PeerFailed) as error:
        raise Failure(str(error)) from None


def _of_hardware(device, stage, report, messages, backend):
    """Return the counters of cards of this machine after a short run."""
    simulated = {name: (getattr(stage, name), field.default) for name, field in fields(Stage).items()
                 if name != "rtt_us"}
    _check_hardware(report=(report, None), backend=(backend, "functional"), **simulated)
    if len(device) > CARDS_MAX:
        raise BadSetting("device", ",".join(device), f"a run has {CARDS_MAX} cards at most")
    from weft.tb.app.device import hardware
    return hardware.counters(device, messages=messages, rtt_us=stage.rtt_us)


def _check_hardware(**options):
    """Reject options, ``name=(value, default)``, that do not fit cards of this machine."""
    for name, (value, default) in options.items():
        if value != default:
            raise BadSetting(name, str(value), "it does not fit cards of this machine; leave it out, or --device")
