"""Sizes and imports of a source tree: folders, files, functions, import edges, circles."""

import ast
from dataclasses import dataclass
from pathlib import Path

from weft.tb.verify.structure.layers import TOP, allowed, edges, levels

ARGUMENTS_MAX = 7


@dataclass(frozen=True)
class Function:
    """Function of the tree: its location, its length in lines, and its number of arguments without ``self``."""

    where: str
    lines: int
    arguments: int


def parts(root):
    """Return ``{part: (folders, files, lines)}``; a part is ``hdl``, ``driver``, ``model``, or a folder of ``tb``."""
    found = {}
    for file in python_files(root):
        inside = file.relative_to(root)
        part = "/".join(inside.parts[:2]) if inside.parts[0] == "tb" and len(inside.parts) > 2 else inside.parts[0]
        folders, files, lines = found.setdefault(part, (set(), 0, 0))
        found[part] = folders | {inside.parent}, files + 1, lines + file.read_bytes().count(b"\n")
    return {part: (len(folders), files, lines) for part, (folders, files, lines) in found.items()}


def python_files(root):
    """Return the Python files of the import packages below ``root``."""
    return [file for top in TOP for file in sorted((Path(root) / top).rglob("*.py"))]


def functions(root):
    """Return every :class:`Function` of the tree, including nested ones and methods."""
    found = []
    for file in python_files(root):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                own = [name for name in names if name.arg not in ("self", "cls")]
                found.append(Function(f"{file.relative_to(root)}:{node.lineno} {node.name}",
                                      node.end_lineno - node.lineno + 1, len(own)))
    return found


def import_edges():
    """Return (edges, upward edges) between folders of this tree; upward: against the order of the layers."""
    found = edges()
    return len(found), sorted(ends for ends in found if not allowed(*ends))


def circles():
    """Return the folders of this tree that import each other, directly or through others."""
    below = {}
    for source, target in edges():
        below.setdefault(source, set()).add(target)

    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for target in below.get(todo.pop(), set()) - seen:
                seen.add(target)
                todo.append(target)
        return seen

    return sorted(name for name in levels() if name in reach(name))
