"""Comparison of two RTLIL texts up to names: a rename must not change the netlist.

``python -m weft.tb.sim.synth.same_netlist write PRESET FILE`` writes the RTLIL of a card, ``... compare OLD NEW``
compares two such files and exits with 1 if they differ.

The comparison is a colour refinement. The initial colour of a wire or memory is its width, direction and initial value.
In each round, a statement (cell, process, connection) gets a colour from its text with colours instead of names, and a
name gets a colour from the statements that contain it, until a round distinguishes no further names. Instances have
the colours of their modules and ports, so sub-modules come first. The texts are equal if their top modules have the
same statements with the same multiplicity. Names, the order of declarations and attributes other than initial values
are ignored.
"""

import argparse
import re
import sys
from collections import Counter
from hashlib import blake2b
from pathlib import Path

IDENTIFIER = re.compile(r"(?<![^\s\"])\\?[\\$][^\s\"]+")
DECLARATION = re.compile(r"(?:wire|memory) .*?([\\$]\S+)$")
ROUNDS = 60


def _digest(*parts):
    return blake2b("\n".join(map(str, parts)).encode(), digest_size=12).hexdigest()


def _modules(text):
    """Return ``{name: (declarations, statements)}``: ``{name: text}``, and lists of lines."""
    found, initial, block, depth = {}, "", None, 0
    declarations, statements = {}, []
    for line in map(str.strip, text.splitlines()):
        word = line.partition(" ")[0]
        if block is not None:
            block.append(line)
            depth += (word == "switch") - (word == "end")
            if not depth:
                statements.append(block)
                block = None
        elif word == "module":
            declarations, statements = {}, []
            found[line.split()[1]] = declarations, statements
        elif word == "attribute":
            initial = line if "\\init " in line else ""
        elif declared := DECLARATION.match(line):
            declarations[declared[1]] = initial + re.sub(r"(input|output) \d+", r"\1", line[:declared.start(1)])
            initial = ""
        elif word in ("cell", "process"):
            block, depth = [line.rsplit(" ", 1)[0]], 1
        elif word == "connect":
            statements.append([line])
    return found


class Design:
    """Colours of the modules and ports of an RTLIL text."""

    def __init__(self, text):
        self._modules, self._colours = _modules(text), {}

    def colours(self, name):
        """Return ``(colour of the module, {wire: colour})``."""
        if name not in self._colours:
            declarations, blocks = self._modules[name]
            self._colours[name] = self._refine(declarations, [self._statement(block, declarations) for block in blocks])
        return self._colours[name]

    def top(self):
        """Return the colour of the first module."""
        return self.colours(next(iter(self._modules)))[0]

    def _statement(self, block, declarations):
        """Return ``(text with a mark for each declared name, names)``; instances have the colours of their ports."""
        kind = block[0].removeprefix("cell ")
        lines = block
        if block[0].startswith("cell ") and kind in self._modules:
            colour, ports = self.colours(kind)
            lines = sorted((ports[line.split()[1]], line) for line in block[1:] if line.startswith("connect"))
            lines = [f"cell {colour}", *(f"connect {port} {line.split(maxsplit=2)[2]}" for port, line in lines)]
        names = []

        def mark(found):
            name = found[0].replace("\\\\", "\\")
            if name not in declarations:
                return found[0]
            names.append(name)
            return "@"

        return IDENTIFIER.sub(mark, "\n".join(lines)), names

    @staticmethod
    def _refine(declarations, statements):
        colours, known = {name: _digest(text) for name, text in declarations.items()}, 0
        texts = [_digest(text) for text, _ in statements]
        for _ in range(ROUNDS):
            seen = [_digest(text, *(colours[name] for name in names))
                    for text, (_, names) in zip(texts, statements, strict=True)]
            if len(set(colours.values())) == known:
                break
            known, uses = len(set(colours.values())), {name: [] for name in declarations}
            for colour, (_, names) in zip(seen, statements, strict=True):
                for place, name in enumerate(names):
                    uses[name].append(f"{colour} {place}")
            colours = {name: _digest(colour, *sorted(uses[name])) for name, colour in colours.items()}
        return _digest(*sorted(Counter(seen).items())), colours


def main(arguments=None):
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m weft.tb.sim.synth.same_netlist",
                                     description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="write the RTLIL of a card")
    write.add_argument("preset")
    write.add_argument("file", type=Path)
    compare = commands.add_parser("compare", help="compare two RTLIL files")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "write":
        from weft.hdl.card import Card
        from weft.hdl.contract.params import preset
        from weft.hdl.verilog import CARD_MODULE, rtlil_text

        given.file.write_text(rtlil_text(Card(preset(given.preset)), CARD_MODULE))
        return 0
    old, new = (Design(file.read_text()) for file in (given.old, given.new))
    same = old.top() == new.top()
    print("the same netlist, up to names" if same else "the netlists differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
