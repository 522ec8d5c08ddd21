"""Sizes, imports and annotations of a source tree: folders, files, functions, import edges, circles."""

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path

from weft.tb.verify.structure.layers import TOP, allowed, edges, levels, reachable

ARGUMENTS_MAX = 7


@dataclass(frozen=True)
class Function:
    """Function of the tree: its location, its length in lines, and its number of arguments without ``self``.

    ``annotated`` is true if all arguments and the result have annotations.
    """

    where: str
    lines: int
    arguments: int
    annotated: bool


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


def checked_files(root):
    """Return the Python files below ``root`` that mypy checks, according to its settings in ``pyproject.toml``."""
    settings = tomllib.loads((Path(root) / "pyproject.toml").read_text(encoding="utf-8"))["tool"].get("mypy", {})
    names = (*settings.get("packages", ()), *settings.get("modules", ()))
    places = [Path(root, *name.split(".")[1:]) for name in names]
    return [file for place in places
            for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")])]


def functions(root, files=None):
    """Return every :class:`Function` of the tree, or of some of its files, including nested ones and methods."""
    found = []
    for file in python_files(root) if files is None else files:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                own = [name for name in names if name.arg not in ("self", "cls")]
                typed = [*own, *(name for name in (node.args.vararg, node.args.kwarg) if name is not None)]
                annotated = node.returns is not None and all(name.annotation is not None for name in typed)
                found.append(Function(f"{file.relative_to(root)}:{node.lineno} {node.name}",
                                      node.end_lineno - node.lineno + 1, len(own), annotated))
    return found


def import_edges():
    """Return (edges, upward edges) between folders of this tree; upward: against the order of the layers."""
    found = edges()
    return len(found), sorted(ends for ends in found if not allowed(*ends))


def circles():
    """Return the folders of this tree that import each other, directly or through others."""
    found = edges()
    return sorted(name for name in levels() if name in reachable(found, name))
