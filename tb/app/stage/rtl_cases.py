"""The bench of :mod:`weft.tb.app.stage.rtl`: brings two cards up and lets two programs run, a thread each."""

import importlib
import importlib.util
import json
import os
from pathlib import Path

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather

from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.app.stage.host import pair_of, raise_first
from weft.tb.app.stage.rtl import VARIABLE
from weft.tb.sim.flow.progress import tell
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import context_config
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig

QUIET_NS = 1_000


def found(where, name):
    """The function ``name`` of a module, or of a file."""
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    return getattr(module, name)


@cocotb.test()
async def stage(dut):
    settings = json.loads(os.environ[VARIABLE])
    wanted, results = settings["stage"], Path(settings["results"])

    def told(*news):
        tell(settings["progress"], *news)

    told("bringing hosts and cards up")
    link = LinkConfig(delay_ns=wanted["rtt_us"] * 500, loss=wanted["loss"])
    config = EnvConfig(link, link, vectors=preset(wanted["preset"]).msix_vectors)
    pair = RtlPair(dut, config, context_config(wanted["rtt_us"]), seed=wanted["seed"], judged=False)
    await pair.start()
    hosts = pair_of([pair.contexts[side] for side in SIDES], told, wanted["rtt_us"])
    programs = [found(*program) for program in settings["programs"]]
    values = await gather(*(bridge(host.play)(program, settings["arguments"])
                            for host, program in zip(hosts, programs, strict=True)))
    errors = [f"{type(host.error).__name__}: {host.error}" for host in hosts if host.error is not None]
    results.write_text(json.dumps({"results": values, "error": "; ".join(errors)}))
    raise_first(hosts)
    while pair.env.frames_in_flight:
        await Timer(QUIET_NS, "ns")
    for host in hosts:
        await bridge(host.context.close)()
    for guard in pair.guards.values():
        guard.check()
    pair.env.finish()
