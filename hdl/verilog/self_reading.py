"""Detection of signals that are driven from themselves, in the RTLIL text of a design.

A field of a struct computed from another field of the same struct is one packed signal computed from itself.
Amaranth treats the fields as separate wires. Verilog has one ``always @*`` for the whole signal, and there
the order of statements matters: every simulator, and synthesis, reads the old value of the other field. With an
operator in between, Icarus and synthesis compute the intended value, but Verilator moves the operator into the process
and computes another one. No tool reports it. An intermediate ``Signal`` for the field that is read avoids it.
"""

import re
from collections import defaultdict

_NAME = re.compile(r"[\\$]\S+")
_PORT = re.compile(r"\b(input|output) \d+ +(\S+)$")
_CLOCKED = ("$dff", "$adff", "$memwr_v2", "$meminit_v2", "$check", "$print")


class SelfReading(ValueError):
    """A signal is driven combinationally from itself. The message names module and signal."""


class _Module:
    """Dependencies between the signals of one module, by whole signals, without registers in between."""

    def __init__(self, text):
        self.sources = defaultdict(set)
        self.inputs, self.outputs, self.blocks = set(), set(), []
        lines = iter(text.splitlines())
        self.name = next(lines).split()[1]
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "wire" and (port := _PORT.search(line)):
                (self.inputs if port[1] == "input" else self.outputs).add(port[2])
            elif word == "connect":
                self._drive(rest)
            elif word == "process":
                self._process(lines)
            elif word == "cell":
                self._cell(rest.split()[0], lines)

    def _drive(self, assignment):
        """Add the connection ``target source``; either may be a slice, the source also a concatenation."""
        target, *sources = _NAME.findall(assignment)
        self.sources[target].update(sources)
        return target

    def _process(self, lines):
        depth, targets, conditions = 1, set(), set()
        while depth:
            word, _, rest = next(lines).strip().partition(" ")
            if word == "assign":
                targets.add(self._drive(rest))
            elif word == "switch":
                depth += 1
                conditions.update(_NAME.findall(rest))
            elif word == "end":
                depth -= 1
        for target in targets:
            self.sources[target] |= conditions

    def _cell(self, kind, lines):
        ports, clocked = {}, kind in _CLOCKED
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "end":
                break
            name, _, value = rest.partition(" ")
            if word == "connect":
                ports[name] = _NAME.findall(value)
            elif name == "\\CLK_ENABLE":
                clocked = not value.endswith("0")
        if not kind.startswith("$"):
            self.blocks.append((kind, ports))
        elif not clocked:
            results = ports.pop("\\Y", None) or ports.pop("\\DATA")
            for result in results:
                self.sources[result].update(*ports.values())

    def reach(self, signal):
        """Return every signal that ``signal`` depends on; itself only if there is a loop."""
        seen, todo = set(), [signal]
        while todo:
            new = self.sources.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen


def self_reading(rtlil):
    """Return ``(module, signal)`` of every signal that depends on itself, through sub-blocks too."""
    modules = {}
    for text in re.split(r"^(?=module )", rtlil, flags=re.MULTILINE)[1:]:
        module = _Module(text)
        modules[module.name] = module
    through = {}  # module: {output: inputs}

    def ports(name):
        if name not in through:
            module = modules[name]
            for kind, connected in module.blocks:
                # A black box (no text) passes nothing through.
                for output, inputs in (ports(kind) if kind in modules else {}).items():
                    for signal in connected.get(output, ()):
                        module.sources[signal].update(*(connected.get(port, ()) for port in inputs))
            through[name] = {output: module.reach(output) & module.inputs for output in module.outputs}
        return through[name]

    for name in modules:
        ports(name)
    return [(name.lstrip("\\"), signal.lstrip("\\")) for name, module in modules.items()
            for signal in list(module.sources) if signal in module.reach(signal)]


def refuse_self_reading(rtlil):
    """Raise :class:`SelfReading` if there is such a signal."""
    found = self_reading(rtlil)
    found = [(module, signal) for module, signal in found if not signal.startswith("$")] or found
    if found:
        raise SelfReading("signals driven combinationally from themselves; add an intermediate Signal for each field "
                          "that is read: " + ", ".join(f"{signal} in {module}" for module, signal in found))
