"""Faulty copies of the blocks: each has a fault that one check must detect, which shows that the check is effective."""

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType


@dataclass
class Faulty:
    """Changes of a text that a check must detect."""

    specs: tuple                # specifications that contain the check
    check: str
    changes: list               # (old text, new text)
    of: type | FunctionType | None = None       # class whose file is changed, or function, if it is a part of the block

    def spec(self, spec):
        """Return the specification of the faulty copy."""
        if self.of is None:
            return spec(mutant(spec.block, *self.changes))
        return spec(replaced={self.of: mutant(self.of, *self.changes)})


def faulty(specs, faults):
    """Return a :class:`Faulty` for each fault: (check, old text, new text), or also the changed part of the block."""
    specs = specs if isinstance(specs, tuple) else (specs,)
    return [Faulty(specs, check, [(old, new)], *of) for check, old, new, *of in faults]


def mutant(block, *changes):
    """Return a faulty copy of a class or function; each ``(old, new)`` replaces a text that occurs once in its file.

    Raises ValueError if a text is missing or occurs more than once: the mutation must be rewritten.
    """
    module = sys.modules[block.__module__]
    text = getattr(block, "mutated_text", None) or Path(module.__file__).read_text()
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{module.__name__} holds {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    faulty = importlib.util.module_from_spec(importlib.util.spec_from_loader(module.__name__, None))
    faulty.__package__, faulty.__file__ = module.__package__, module.__file__
    exec(compile(text, f"{module.__file__} (mutant)", "exec"), faulty.__dict__)
    result = getattr(faulty, block.__name__)
    result.mutated_text = text
    return result


def named(block, *lines):
    """Return a copy of a class; signals of lines such as ``a, b = Signal(), Signal(8)`` are named ``a_q``, ``b_q``."""
    changes = []
    for line in lines:
        names = iter(line.partition(" = ")[0].split(", "))
        changes.append((line, re.sub(r"(Signal(?:\.like)?)\(((?:[^()]|\([^()]*\))*)\)", lambda call, names=names:
                                     f'{call[1]}({call[2] and call[2] + ", "}name="{next(names)}_q")', line)))
    return mutant(block, *changes)
