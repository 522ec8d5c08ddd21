"""Verilog of two cards side by side: the top module of the end-to-end benches."""

from weft.hdl.mac.edge import AT_MAC
from weft.tb.sim.flow.bench import run_bench
from weft.tb.sim.flow.build import card_text
from weft.tb.sim.flow.simulate import top_ports
from weft.tb.sim.pair.settings import SIDES

TOP = "two_cards"
BEAT = ("tvalid", "tlast", "tuser", "tkeep", "tdata")
CLOCKS = ("clk", "mac_clk")


def inside(side):
    """Return the hierarchical path of a side's card below module ``two_cards``."""
    return f"side_{side}.card"


def top_of(sides):
    """Return the name of the top module of cards for these sides."""
    return TOP if tuple(sides) == SIDES else f"cards_{len(sides)}"


def two_cards_verilog(card_text, card="weft_card", sides=SIDES):
    """Return Verilog text with module ``two_cards``, which instantiates module ``card`` of ``card_text`` twice.

    ``clk`` and ``rst`` are common. Each card also has a separate reset, ``a_rst`` and ``b_rst``. Every other port
    appears twice, as ``a_<port>`` and ``b_<port>``, and so does ``clk`` if the card has two clocks. With other
    ``sides``, the module is that of :func:`top_of`, and has a card for each of them. The signals that
    the source of an AXI stream drives also appear as one word, ``<stream>__beat``: from the top the members of
    :data:`BEAT`. Where the bench is the source, the word is an input, and the members are outputs that show it.
    """
    ports = top_ports(card_text, card)
    clocks = [name for name in CLOCKS if name in ports]
    pins = {name: port for name, port in ports.items() if name not in (*clocks, "rst")}
    streams = [name.removesuffix("__tvalid") for name in pins if name.endswith("__tvalid")]
    words = {stream: (pins[f"{stream}__tvalid"][0], sum(pins[f"{stream}__{member}"][1] for member in BEAT))
             for stream in streams}
    shown = {f"{stream}__{member}": ("output", pins.pop(f"{stream}__{member}")[1])
             for stream in streams for member in BEAT}
    pins |= {f"{stream}__beat": port for stream, port in words.items()}
    own = len(clocks) > 1
    declarations, body = [] if own else ["  input clk"], []
    declarations.append("  input rst")
    for side in sides:
        driven = {name: f"{side}_{name}" if own else name for name in clocks}
        declarations += [f"  input {name}" for name in driven.values() if own]
        declarations += [_declaration(f"{side}_{name}", *port)
                         for name, port in ({"rst": ("input", 1)} | pins | shown).items()]
        for stream in streams:
            members = ", ".join(f"{side}_{stream}__{member}" for member in BEAT)
            body.append(f"  assign {{{members}}} = {side}_{stream}__beat;")
        body.append(_instance("card_side", f"side_{side}",
                              driven | {"rst": f"rst | {side}_rst"} | {name: f"{side}_{name}" for name in pins}))
    return "\n".join([card_text, _card_side(card, ports, clocks, pins, streams),
                      _module(top_of(sides), declarations, body)])


def _card_side(card, ports, clocks, pins, streams):
    """Return the Verilog of module ``card_side``: a card with registered inputs, and with ``pins`` as its ports.

    A value that the bench drives reaches the card at the falling edge of the card's clock, in time for the next rising
    edge. Otherwise Verilator evaluates all logic that depends on it after every change of any input, three times a
    cycle. The registers are in this module and the module is not inlined, so that all sides share one piece of code,
    which is compiled once.
    """
    inputs = {"rst": 1} | {name: width for name, (direction, width) in pins.items() if direction == "input"}
    wires = {name: f"{name}__held" if name in inputs else name for name in ports}
    body = ["  /* verilator no_inline_module */", *(
        _held(name, width, clocks[-1 if name.startswith(AT_MAC) else 0]) for name, width in inputs.items())]
    for stream in streams:
        members = [f"{stream}__{member}" for member in BEAT]
        if f"{stream}__beat" in inputs:
            at = pins[f"{stream}__beat"][1]
            for name in members:
                at -= ports[name][1]
                wires[name] = f"{stream}__beat__held[{at + ports[name][1] - 1}:{at}]"
        else:
            body += [f"  wire [{ports[name][1] - 1}:0] {name};" for name in members]
            body.append(f"  assign {stream}__beat = {{{', '.join(members)}}};")
    declarations = [*(f"  input {name}" for name in clocks), "  input rst",
                    *(_declaration(name, *port) for name, port in pins.items())]
    return _module("card_side", declarations, [*body, _instance(card, "card", wires)])


def _module(name, declarations, body):
    return f"module {name} (\n" + ",\n".join(declarations) + "\n);\n" + "\n".join(body) + "\nendmodule\n"


def _instance(module, name, wires):
    return f"  {module} {name} (\n" + ",\n".join(f"    .{port}({wire})" for port, wire in wires.items()) + "\n  );"


def _declaration(name, direction, width):
    return f"  {direction} [{width - 1}:0] {name}" if width > 1 else f"  {direction} {name}"


def _held(name, width, clock):
    """Return the register of an input, loaded at the falling clock edge; ``rst`` is initially active."""
    return (f"  reg [{width - 1}:0] {name}__held = {int(name == 'rst')};\n"
            f"  always @(negedge {clock}) {name}__held <= {name};")


def cards_name(params, sides=SIDES):
    """Return the name of the simulator build for two such cards, or as many as there are sides."""
    several = "two-cards" if tuple(sides) == SIDES else f"{len(sides)}-cards"
    return f"{several}-{params.name}" + "-straddle" * params.straddle + "-two-clocks" * params.mac_clock


def two_cards_text(params, sides=SIDES):
    """Return the Verilog of module ``two_cards``, or of that of other sides, with the real card."""
    from weft.hdl.verilog import CARD_MODULE

    return two_cards_verilog(card_text(params), CARD_MODULE, sides)


def run_cards(card, cases, settings=None, **options):
    """Run a bench of two cards with the parameters ``card``; return its result, as ``run_bench`` does."""
    return run_bench(verilog=two_cards_text(card), top=TOP, name=cards_name(card), cases=cases, settings=settings,
                     sim="verilator", optimize="run", **options)


def clock_ports(text):
    """Return the names of the clocks of module ``two_cards`` in its Verilog text."""
    return [name for name in top_ports(text, TOP) if name in CLOCKS or name.partition("_")[2] in CLOCKS]
