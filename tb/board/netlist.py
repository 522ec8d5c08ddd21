"""Which signals of a flat netlist change their clock: found by following the wires, not by names.

The netlist is what Yosys writes after flattening, with the vendor's blocks as black boxes.
"""

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass

from weft.hdl.board.u50 import TOP, U50, card_block, stubs_text
from weft.hdl.board.vendor import BLOCKS, CMAC
from weft.hdl.verilog import CARD_MODULE, rtlil_text, verilog_text
from weft.tb.flow import lint, yosys
from weft.tb.flow.simulate import BUILD_ROOT, locked

SCRIPT = ("read_verilog {files}; hierarchy -check -top {top}; proc -noopt; flatten; opt_expr; opt_clean; opt_dff; "
          "memory_dff; memory_collect; opt_clean; write_json netlist.json")
REGISTERS = ("$dff", "$adff", "$sdff", "$dffe", "$adffe", "$sdffe", "$sdffce")
MEMORIES = ("$mem_v2",)
SET_BY_HAND = ((CMAC, "gt_loopback_in"), (CMAC, "sys_reset"))     # asynchronous inputs that our logic drives


@dataclass(frozen=True)
class Found:
    """``source`` and ``sink``: sets of names of a bit. ``direct``: no logic in between. ``reset``: an asynchronous one.
    ``write``, ``read``: clock domains, None of what has none."""

    source: frozenset
    sink: frozenset
    write: str | None
    read: str
    direct: bool
    reset: bool


def netlist_of_board():
    """Cells, net names and ports of the board's flat netlist as Yosys has them; kept by content."""
    texts = {"top.v": verilog_text(rtlil_text(U50(), TOP)), "stubs.v": stubs_text()}
    script = SCRIPT.format(files=" ".join(texts), top=TOP)
    digest = hashlib.sha256("\0".join((*texts.values(), script, yosys.version())).encode()).hexdigest()[:12]
    where = BUILD_ROOT / f"board-{digest}"
    with locked(BUILD_ROOT / ".locks" / where.name):
        if not (where / "ready").exists():
            where.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (where / name).write_text(text)
            lint.yosys(where / "top.v", script)
            (where / "ready").touch()
    module = json.loads((where / "netlist.json").read_text())["modules"][TOP]
    return module["cells"], module["netnames"], module["ports"]


class Netlist:
    """What drives each bit, and in which domain it changes."""

    def __init__(self, cells, netnames, ports, clocks):
        self.names = defaultdict(set)
        for name, net in netnames.items():
            for bit in net["bits"]:
                self.names[bit].add(name.replace(".", "/"))
        self._clock_of = {netnames[net]["bits"][0]: domain for domain, net in clocks.items()}
        self.domain, self._logic, self._sinks = {}, {}, []
        for port in ports.values():
            if port["direction"] == "input":
                self.domain.update(dict.fromkeys(port["bits"]))
        for name, cell in cells.items():
            self._add(name, cell)

    def _add(self, name, cell):
        kind, ends = cell["type"], cell["connections"]
        if kind in REGISTERS:
            domain = self._clock_of[ends["CLK"][0]]
            self.domain.update(dict.fromkeys(ends["Q"], domain))
            sinks = zip(ends["D"], ends["Q"], strict=True)
            self._sinks += [(self.names[q], d, domain, False) for d, q in sinks]
            for port in ("EN", "SRST", "ARST"):
                self._sinks += [(self.names[q], bit, domain, port == "ARST") for bit in ends.get(port, ())
                                for q in ends["Q"][:1]]
        elif kind in MEMORIES:
            self._add_memory(name, cell, ends)
        elif not kind.startswith("$"):
            self._add_block(name, kind, ends)
        else:
            inputs = [bit for port, bits in ends.items() if cell["port_directions"][port] == "input" for bit in bits]
            for port, bits in ends.items():
                if cell["port_directions"][port] == "output":
                    self._logic.update(dict.fromkeys(bits, inputs))

    def _add_memory(self, name, cell, ends):
        """A memory holds what the other side wrote long ago: its words are no crossing, its ports belong to clocks."""
        if not int(cell["parameters"]["WR_PORTS"], 2):      # a table of constants
            self._logic.update(dict.fromkeys(ends["RD_DATA"], ends["RD_ADDR"]))
            return
        for way, ports in (("WR", ("WR_ADDR", "WR_DATA", "WR_EN")), ("RD", ("RD_ADDR", "RD_EN"))):
            assert int(cell["parameters"]["RD_CLK_ENABLE"], 2), f"{name} is read without a clock"
            domain = self._clock_of[ends[f"{way}_CLK"][0]]
            self._sinks += [({f"{name}.{port}"}, bit, domain, False) for port in ports for bit in ends[port]]
        self.domain.update(dict.fromkeys(ends["RD_DATA"], self._clock_of[ends["RD_CLK"][0]]))

    def _add_block(self, name, kind, ends):
        block = card_block() if kind == CARD_MODULE else BLOCKS[kind]
        for port, bits in ends.items():
            domain = None if port in block.asynchronous else block.clock
            if port in block.outputs:
                for bit in bits:
                    self.domain.setdefault(bit, domain)
                    self.names[bit].add(f"{name}.{port}")
            elif domain or (kind, port) in SET_BY_HAND:
                self._sinks += [({f"{name}.{port}"}, bit, domain or block.clock, False) for bit in bits]

    def crossings(self):
        """Every pair of a source and a sink that are not of one domain, and every asynchronous reset by a block."""
        domains, own = {}, {}

        def reach(bit, memory, leaf):
            """Union of ``leaf`` over what a bit depends on."""
            if bit in self.domain or bit not in self._logic:
                return leaf(bit)
            inputs = self._logic[bit]                       # of the whole cell, one list for all its outputs
            if id(inputs) not in memory:
                memory[id(inputs)] = frozenset().union(*{reach(other, memory, leaf) for other in inputs})
            return memory[id(inputs)]

        for names, bit, read, reset in self._sinks:
            if reach(bit, domains, self._domain_of) <= {read} and not reset:
                continue
            for source in reach(bit, own, lambda bit: frozenset((bit,))):
                if isinstance(source, str):                # a constant
                    continue
                found = Found(frozenset(self.names[source]), frozenset(names), self.domain[source], read,
                              source == bit, reset)
                if found.write != read or any("." in name for name in found.source):
                    yield found

    def _domain_of(self, bit):
        return frozenset() if isinstance(bit, str) else frozenset((self.domain[bit],))
