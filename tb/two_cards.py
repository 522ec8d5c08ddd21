"""Verilog of two cards side by side: the top module of the end-to-end benches."""

from .sim import top_ports

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
