"""Clock-domain crossings of a flat netlist, found by following the wires, not by names.

The netlist is the output of Yosys after flattening, with the vendor's blocks as black boxes.
"""

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass

from weft.hdl.board.u50 import TOP, U50, card_block, stubs_text
from weft.hdl.board.vendor import BLOCKS, CMAC
from weft.hdl.contract.params import preset
from weft.hdl.verilog import CARD_MODULE, rtlil_text, verilog_text
from weft.tb.sim.flow.build import card_text
from weft.tb.sim.flow.simulate import BUILD_ROOT, locked
from weft.tb.sim.synth import lint, yosys

SCRIPT = ("read_verilog {files}; hierarchy -check -top {top}; proc -noopt; flatten; opt_expr; opt_clean; opt_dff; "
          "memory_dff; memory_collect; opt_clean; write_json netlist.json")
REGISTERS = ("$dff", "$adff", "$sdff", "$dffe", "$adffe", "$sdffe", "$sdffce")
MEMORIES = ("$mem_v2",)
SET_BY_HAND = ((CMAC, "gt_loopback_in"), (CMAC, "sys_reset"))     # asynchronous inputs that our logic drives


@dataclass(frozen=True)
class Found:
    """A clock-domain crossing of one bit, or an asynchronous reset.

    Attributes
    ----------
    source, sink : frozenset of str
        Names of the bit at either end.
    write, read : str or None
        Clock domains; None for a source without one.
    direct : bool
        There is no logic in between.
    reset : bool
        The sink is an asynchronous reset.
    """

    source: frozenset
    sink: frozenset
    write: str | None
    read: str
    direct: bool
    reset: bool


def netlist_of_board():
    """Return cells, net names and ports of the board's flat netlist as Yosys writes them; cached by content."""
    return _netlist(TOP, {"top.v": verilog_text(rtlil_text(U50(), TOP)), "stubs.v": stubs_text()})


def netlist_of_card():
    """Return the same of the card with ``CardParams.mac_clock``, preset ``test``: no other size has other clocks."""
    card = preset("test").with_(mac_clock=True)
    return _netlist(CARD_MODULE, {"top.v": card_text(card)})


def _netlist(top, texts):
    script = SCRIPT.format(files=" ".join(texts), top=top)
    digest = hashlib.sha256("\0".join((*texts.values(), script, yosys.version())).encode()).hexdigest()[:12]
    where = BUILD_ROOT / f"netlist-{top}-{digest}"
    with locked(BUILD_ROOT / ".locks" / where.name):
        if not (where / "ready").exists():
            where.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (where / name).write_text(text)
            lint.yosys(where / "top.v", script)
            (where / "ready").touch()
    module = json.loads((where / "netlist.json").read_text())["modules"][top]
    return module["cells"], module["netnames"], module["ports"]


class Netlist:
    """Driver of each bit, and the clock domain in which it changes.

    Parameters
    ----------
    cells, netnames, ports : dict
        Of the flat module.
    clocks : dict
        Net of the clock of each domain.
    domain_of : callable, optional
        Domain of a port, or None. The driver of an output with a domain must be of that domain.
    """

    def __init__(self, cells, netnames, ports, clocks, domain_of=lambda port: None):
        self.names = defaultdict(set)
        for name, net in netnames.items():
            for bit in net["bits"]:
                self.names[bit].add(name.replace(".", "/"))
        self._clock_of = {netnames[net]["bits"][0]: domain for domain, net in clocks.items()}
        self.domain, self._logic, self._sinks = {}, {}, []
        for name, port in ports.items():
            if port["direction"] == "input":
                self.domain.update(dict.fromkeys(port["bits"], domain_of(name)))
            elif domain := domain_of(name):
                self._sinks += [({name}, bit, domain, False) for bit in port["bits"]]
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
        """Add a memory: its ports belong to clocks, its words do not cross, because they were written long before.

        A port that is read without a clock is logic of its address and of the words, which change with the write clock.
        """
        values = {key: cell["parameters"][key] for key in ("WR_PORTS", "RD_PORTS", "ABITS", "WIDTH")}
        writers, readers, abits, width = (int(value, 2) for value in values.values())
        if not writers:                                     # a ROM
            self._logic.update(dict.fromkeys(ends["RD_DATA"], ends["RD_ADDR"]))
            return
        domain, = {self._clock_of[clk] for clk in ends["WR_CLK"]}
        self._sinks += [({f"{name}.{port}"}, bit, domain, False) for port in ("WR_ADDR", "WR_DATA", "WR_EN")
                        for bit in ends[port]]
        words = name, "words"                               # stands for one bit of the words
        self.domain[words] = domain
        self.names[words] = {f"{name} words"}
        clocked = int(cell["parameters"]["RD_CLK_ENABLE"], 2)
        for k in range(readers):
            address, data = ends["RD_ADDR"][k * abits:(k + 1) * abits], ends["RD_DATA"][k * width:(k + 1) * width]
            if not clocked >> k & 1:
                self._logic.update(dict.fromkeys(data, [*address, words]))
                continue
            domain = self._clock_of[ends["RD_CLK"][k]]
            self._sinks += [({f"{name}.RD_{port}"}, bit, domain, False) for port, bits in
                            (("ADDR", address), ("EN", ends["RD_EN"][k:k + 1])) for bit in bits]
            self.domain.update(dict.fromkeys(data, domain))

    def _add_block(self, name, kind, ends):
        block = card_block() if kind == CARD_MODULE else BLOCKS[kind]
        for port, bits in ends.items():
            domain = block.clock_of(port)
            if port in block.outputs:
                for bit in bits:
                    self.domain.setdefault(bit, domain)
                    self.names[bit].add(f"{name}.{port}")
            elif domain or (kind, port) in SET_BY_HAND:
                self._sinks += [({f"{name}.{port}"}, bit, domain or block.clock, False) for bit in bits]

    def crossings(self):
        """Yield every source and sink in different domains, and every asynchronous reset that a block drives."""
        domains, own = {}, {}

        def reach(bit, memory, leaf):
            """Return the union of ``leaf`` over all bits that ``bit`` depends on."""
            if bit in self.domain or bit not in self._logic:
                return leaf(bit)
            inputs = self._logic[bit]                       # of the whole cell: one list for all its outputs
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
