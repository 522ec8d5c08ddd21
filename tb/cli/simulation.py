"""``weft sim``: the main job."""

from typing import Annotated

import typer

from weft.driver.engine.qp_table import FIRST_INDEX
from weft.hdl.contract import wire
from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import card_params, choice, mappable_file, number, option, refuse

SIMULATORS = ("verilator", "icarus")
BACKENDS = ("rtl", "model")
RTT_US_MAX = 1_000_000


def sim(
    file: Annotated[str, option("File that travels; otherwise one of 1 MiB from an installed package.", "PATH")] = "",
    loss: Annotated[str, option("Chance that the link loses a frame from A to B.")] = "0.01",
    reorder: Annotated[str, option("Chance that it holds a frame back, by at most 1 µs.")] = "0",
    dup: Annotated[str, option("Chance that it delivers a frame twice.")] = "0",
    corrupt: Annotated[str, option("Chance that it flips a bit of a frame.")] = "0",
    back_loss: Annotated[str, option("The same four for loss reports and acknowledgements, from B to A.")] = "0",
    back_reorder: Annotated[str, option("")] = "0",
    back_dup: Annotated[str, option("")] = "0",
    back_corrupt: Annotated[str, option("")] = "0",
    rtt_us: Annotated[str, option("Round trip time of the link, microseconds.")] = "20",
    qps: Annotated[str, option("Queue pairs that carry the file.")] = "1",
    seed: Annotated[str, option("Of every random choice.")] = "1",
    pmtu: Annotated[str, option("Path MTU: 256, 512, 1024, 2048 or 4096.")] = "1024",
    sim: Annotated[str, option("verilator or icarus.", "NAME")] = "verilator",
    preset: Annotated[str, option("Size of the card: test, basic or full.", "NAME")] = "test",
    backend: Annotated[str, option("rtl: the gateware. model: the card in time, far faster.", "NAME")] = "rtl",
    straddle: Annotated[bool, typer.Option("--straddle", help="Cards and PCIe blocks with straddle.")] = False,
    mac_clock: Annotated[bool, typer.Option("--mac-clock", help="MACs with clocks of their own.")] = False,
    pfc: Annotated[str, option("Flow control: the priority, 0 to 7, for which both cards pause.")] = "",
    timeline: Annotated[bool, typer.Option("--timeline", help="Keep a timeline that Perfetto opens.")] = False,
    waves: Annotated[bool, typer.Option("--waves", help="Record waves; so does WAVES=1 in the environment.")] = False,
    view: Annotated[bool, typer.Option("--view", help="Open the waves in GTKWave afterwards.")] = False,
):
    """A real file crosses a lossy link between two cards, RTL end to end or in the model; then a report."""
    card = card_params(preset)
    chances = {"LOSS": loss, "REORDER": reorder, "DUP": dup, "CORRUPT": corrupt, "BACK_LOSS": back_loss,
               "BACK_REORDER": back_reorder, "BACK_DUP": back_dup, "BACK_CORRUPT": back_corrupt}
    settings = {
        "file": str(mappable_file(file, card)) if file else "",
        **{name.lower(): number(name, chance, float, 0, 1) for name, chance in chances.items()},
        "rtt_us": number("RTT_US", rtt_us, float, 0, RTT_US_MAX),
        "qps": number("QPS", qps, int, 1, card.qps - FIRST_INDEX),
        "seed": number("SEED", seed, int, 0, (1 << 31) - 1),
        "pmtu": choice("PMTU", pmtu, [str(pmtu) for pmtu in wire.PMTUS.values()]),
        "sim": choice("SIM", sim, SIMULATORS),
        "timeline": timeline, "straddle": straddle, "mac_clock": mac_clock,
        "pfc": number("PFC", pfc, int, 0, wire.PRIORITIES - 1) if pfc else None,
        "backend": choice("BACKEND", backend, BACKENDS),
        "preset": preset, "waves": waves, "view": view,
    }
    settings["pmtu"] = int(settings["pmtu"])
    with needs("sim"):
        from weft.tb.app.job.run import run
        from weft.tb.sim.flow.simulate import waves_wanted
        try:
            settings["waves"] |= waves_wanted()
        except ValueError as error:
            refuse(str(error))
        if settings["backend"] == "model" and (settings["waves"] or settings["view"]):
            refuse("the model has no signals; record waves with BACKEND=rtl")
        if settings["backend"] == "model" and straddle:
            refuse("the model has no straddle; use --backend rtl")
        if settings["backend"] == "model" and mac_clock:
            refuse("the model has one clock; use --backend rtl")
        if settings["backend"] == "model" and pfc:
            refuse("the model has no flow control; use --backend rtl")
        raise typer.Exit(run(**settings))
