"""The command line ``weft``: thin commands that load what they need when they run."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from weft.driver.engine.qp_table import FIRST_QPN
from weft.hdl import abi, params, wire

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Weft: an RDMA network card whose receive window has no hardware limit.")

SIMULATORS = ("verilator", "icarus")
BAD_USAGE = 2
RTT_US_MAX = 1_000_000


def refuse(sentence):
    """End with one sentence on standard error and exit status 2."""
    print(f"weft: {sentence}", file=sys.stderr)
    raise typer.Exit(BAD_USAGE)


def number(name, text, kind, low, high):
    """``text`` as a number between ``low`` and ``high``, or an end with a sentence."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        what = "a whole number" if kind is int else "a number"
        refuse(f"{name} is {text!r}; it must be {what} from {low} to {high}")
    return value


def choice(name, value, choices):
    """``value`` if it is one of ``choices``, or an end with a sentence."""
    if value not in choices:
        refuse(f"{name} is {value!r}; choose one of {', '.join(map(str, choices))}")
    return value


def readable_file(path):
    """``path`` as a readable regular file, or an end with a sentence."""
    path = Path(path)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        refuse(f"the file {str(path)!r} does not exist")
    except OSError as error:
        refuse(f"the file {str(path)!r} cannot be read: {error.strerror}")
    if not path.is_file():
        refuse(f"{str(path)!r} is not a file")
    if not os.access(path, os.R_OK):
        refuse(f"the file {str(path)!r} cannot be read")
    return path.absolute()


def mappable_file(path, card):
    """``path`` as a readable file that fits the page table of the card, or an end with a sentence."""
    path, room = readable_file(path), card.ptes * abi.PAGE_4K
    if (size := path.stat().st_size) > room:
        refuse(f"the file {str(path)!r} has {size:,} bytes; a card of preset {card.name!r} maps at most {room:,}")
    return path


def card_params(name):
    """The preset ``name``, or an end with a sentence."""
    try:
        return params.preset(name)
    except ValueError as error:
        refuse(str(error))


def _needs(extra):
    """Tell which extra to install when an import fails that it would have brought."""
    class Needs:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, _traceback):
            if kind is not None and issubclass(kind, ModuleNotFoundError) and not (error.name or "").startswith("weft"):
                print(f"weft: this command needs the Python package {error.name!r}; "
                      f"install it with: pip install 'weft-rnic[{extra}]'", file=sys.stderr)
                raise typer.Exit(1) from None
    return Needs()


def _option(help_text, metavar="NUMBER"):
    return typer.Option(help=help_text, metavar=metavar)


@app.command()
def sim(
    file: Annotated[str, _option("File that travels; otherwise one of 1 MiB from an installed package.", "PATH")] = "",
    loss: Annotated[str, _option("Chance that the link loses a frame from A to B.")] = "0.01",
    reorder: Annotated[str, _option("Chance that it holds a frame back, by at most 1 µs.")] = "0",
    dup: Annotated[str, _option("Chance that it delivers a frame twice.")] = "0",
    corrupt: Annotated[str, _option("Chance that it flips a bit of a frame.")] = "0",
    back_loss: Annotated[str, _option("The same four for loss reports and acknowledgements, from B to A.")] = "0",
    back_reorder: Annotated[str, _option("")] = "0",
    back_dup: Annotated[str, _option("")] = "0",
    back_corrupt: Annotated[str, _option("")] = "0",
    rtt_us: Annotated[str, _option("Round trip time of the link, microseconds.")] = "20",
    qps: Annotated[str, _option("Queue pairs that carry the file.")] = "1",
    seed: Annotated[str, _option("Of every random choice.")] = "1",
    pmtu: Annotated[str, _option("Path MTU: 256, 512, 1024, 2048 or 4096.")] = "1024",
    sim: Annotated[str, _option("verilator or icarus.", "NAME")] = "verilator",
    preset: Annotated[str, _option("Size of the card: test, basic or full.", "NAME")] = "test",
    waves: Annotated[bool, typer.Option("--waves", help="Record waves.")] = False,
    view: Annotated[bool, typer.Option("--view", help="Open the waves in GTKWave afterwards.")] = False,
):
    """A real file crosses a lossy link between two cards, RTL end to end; then a report."""
    card = card_params(preset)
    chances = {"LOSS": loss, "REORDER": reorder, "DUP": dup, "CORRUPT": corrupt, "BACK_LOSS": back_loss,
               "BACK_REORDER": back_reorder, "BACK_DUP": back_dup, "BACK_CORRUPT": back_corrupt}
    settings = {
        "file": str(mappable_file(file, card)) if file else "",
        **{name.lower(): number(name, chance, float, 0, 1) for name, chance in chances.items()},
        "rtt_us": number("RTT_US", rtt_us, float, 0, RTT_US_MAX),
        "qps": number("QPS", qps, int, 1, card.qps - FIRST_QPN),
        "seed": number("SEED", seed, int, 0, (1 << 31) - 1),
        "pmtu": choice("PMTU", pmtu, [str(pmtu) for pmtu in wire.PMTUS.values()]),
        "sim": choice("SIM", sim, SIMULATORS),
        "preset": preset, "waves": waves, "view": view,
    }
    settings["pmtu"] = int(settings["pmtu"])
    with _needs("sim"):
        from weft.tb.job.run import run
        raise typer.Exit(run(**settings))


@app.command()
def verilog(
    preset: Annotated[str, _option("Size of the card: test, basic or full.", "NAME")] = "basic",
    output: Annotated[Path | None, _option("Where it goes; sim_build/verilog/PRESET/weft_card.v by itself.",
                                           "PATH")] = None,
    lint: Annotated[bool, typer.Option(help="Check the result with Verilator -Wall.")] = True,
    yosys: Annotated[bool, typer.Option("--yosys", help="Check it with Yosys too, as synthesis does.")] = False,
):
    """Verilog of the card for an FPGA, linted."""
    card, start = card_params(preset), time.monotonic()
    with _needs("hdl"):
        from weft.hdl.verilog import CARD_MODULE, card_verilog
        text = card_verilog(card)
    output = output or Path("sim_build/verilog") / preset / f"{CARD_MODULE}.v"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text)
    told = f"{len(text) / 1e6:.1f} MB in {time.monotonic() - start:.0f} s"
    if lint or yosys:
        with _needs("sim"):
            from weft.tb.flow.lint import LintFailed, verilator_lint, yosys_check
            from weft.tb.flow.simulators import MissingSimulator
            start = time.monotonic()
            try:
                for wanted, check in ((lint, verilator_lint), (yosys, yosys_check)):
                    if wanted:
                        check(output, CARD_MODULE)
            except (LintFailed, MissingSimulator) as error:
                print(f"weft: {error}", file=sys.stderr)
                raise typer.Exit(1) from None
        told += f", lint clean in {time.monotonic() - start:.0f} s"
    print(f"{output}: module {CARD_MODULE}, preset {preset}, {told}")


@app.command()
def synth(
    preset: Annotated[str, _option("Size of the card: test, basic or full.", "NAME")] = "test",
    depth: Annotated[str, _option("Levels of blocks shown.")] = "1",
):
    """Cells and memories by block on an UltraScale+ FPGA, estimated by Yosys; JSON in sim_build/reports/synth.json."""
    card_params(preset)
    depth = number("--depth", depth, int, 1, 9)
    with _needs("dev"):
        from weft.tb.flow.lint import LintFailed
        from weft.tb.flow.simulators import MissingSimulator
        from weft.tb.flow.synth import run
        try:
            raise typer.Exit(run(preset, depth))
        except (LintFailed, MissingSimulator) as error:
            print(f"weft: {error}", file=sys.stderr)
            raise typer.Exit(1) from None


@app.command()
def regs(output: Annotated[Path | None, _option("Write there instead of to the terminal.", "PATH")] = None):
    """Register map and host-visible layouts, as Markdown."""
    from weft.tb.document.registers import registers_markdown

    if output is None:
        print(registers_markdown(), end="")
    else:
        output.write_text(registers_markdown())


@app.command()
def bench(
    only: Annotated[list[str] | None, _option("Run this benchmark alone; may be given several times.", "NAME")] = None,
    names: Annotated[bool, typer.Option("--list", help="Name the benchmarks and end.")] = False,
):
    """Benchmarks: a table, and JSON in sim_build/reports/bench.json; fails when a figure is below its bar."""
    with _needs("sim"):
        from weft.tb.measure.benchmark import BENCHMARKS
        from weft.tb.measure.run import print_list, run
        if names:
            print_list()
            raise typer.Exit(0)
        raise typer.Exit(run([choice("the benchmark", name, BENCHMARKS) for name in only or ()]))


@app.command()
def formal(
    only: Annotated[list[str] | None, _option("Prove this specification alone; may be given several times.",
                                              "NAME")] = None,
    names: Annotated[bool, typer.Option("--list", help="Name the specifications and end.")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Decide what is known already, too.")] = False,
):
    """Formal proofs and broken copies that they must catch: a table, and JSON in sim_build/reports/formal.json."""
    with _needs("formal"):
        from weft.tb.proof.run import run, specifications
        if names:
            print("\n".join(specifications()))
            raise typer.Exit(0)
        raise typer.Exit(run([choice("the specification", name, specifications()) for name in only or ()], not anew))


if __name__ == "__main__":
    app()
