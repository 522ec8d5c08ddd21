"""Names in Verilog that Amaranth wrote: instances, signals, and names of a signal's values."""

import fnmatch
import re
from dataclasses import dataclass, field

from weft.tb.sim.flow.verilog_text import by_number

_NAME = r"\\\S+|[\w$]+"
_MODULE = re.compile(rf"^module ({_NAME})\s*\(.*?^endmodule", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(rf"^  ({_NAME})\s+({_NAME})\s*\($", re.MULTILINE)
_DECLARATION = re.compile(
    r"""^\ \ \(\*\ enum_value_(?P<bits>[01]+)\ =\ "(?P<value>[^"]*)"\ \*\)$
      | ^\ \ (?:wire|reg|input|output)\ (?:signed\ )?(?:\[(?P<high>\d+):0\]\ ?)?
        (?P<name>\\\S+|[\w$]+)\s*(?:=[^;\n]*)?;?$""",
    re.MULTILINE | re.VERBOSE)


@dataclass
class Wire:
    """Signal: its width, and the names of its values, keyed by their bits."""

    name: str
    width: int
    values: dict = field(default_factory=dict)


class Design:
    """Hierarchy of a Verilog text with top module ``top``, parsed on demand."""

    def __init__(self, text, top):
        self.top = top
        self._bodies = {_plain(found[1]): found[0] for found in _MODULE.finditer(text)}
        self._instances, self._wires = {}, {}

    def module_at(self, path):
        """Return the module of the instance at the dotted ``path``, or None; the empty path is the top module."""
        module = self.top
        for part in filter(None, path.split(".")):
            module = self._children(module).get(part)
            if module is None:
                return None
        return module

    def instance(self, root, pattern):
        """Return the path of the highest instance below ``root`` that matches a shell pattern, or None."""
        if "*" not in pattern:
            path = ".".join(part for part in (root, pattern) if part)
            return path if self.module_at(path) else None
        level = [(path, module) for path, module in [(root, self.module_at(root))] if module]
        while level:
            level = [(f"{path}.{name}" if path else name, kind)
                     for path, module in level for name, kind in self._children(module).items()]
            for path, _ in level:
                if fnmatch.fnmatchcase(path.removeprefix(f"{root}."), pattern):
                    return path
        return None

    def wires(self, path):
        """Return the signals of the instance at ``path``: ``{name: Wire}``; empty if there is no such instance."""
        module = self.module_at(path)
        if module is None:
            return {}
        if module not in self._wires:
            self._wires[module] = self._parse(self._bodies[module])
        return self._wires[module]

    def find(self, path, pattern):
        """Return the signals of an instance whose names match a shell pattern, in the order of their numbers."""
        wires = self.wires(path)
        if "*" not in pattern:
            return [wires[pattern]] if pattern in wires else []
        found = (wire for name, wire in wires.items() if fnmatch.fnmatchcase(name, pattern) and "$" not in name)
        return sorted(found, key=lambda wire: by_number(wire.name))

    def _children(self, module):
        if module not in self._instances:
            self._instances[module] = {_plain(name): _plain(kind) for kind, name in
                                       _INSTANCE.findall(self._bodies[module]) if _plain(kind) in self._bodies}
        return self._instances[module]

    @staticmethod
    def _parse(body):
        wires, values = {}, {}
        for found in _DECLARATION.finditer(body):
            if found["bits"]:
                values[found["bits"]] = found["value"]
                continue
            name = _plain(found["name"])
            known = wires.setdefault(name, Wire(name, int(found["high"] or 0) + 1))
            known.values.update(values)
            values = {}
        return wires


def _plain(name):
    return name.removeprefix("\\")
