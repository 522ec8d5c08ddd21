"""Digest of the code of a test: its file and all files of benches, model and driver that it imports.

Comments, docstrings and layout do not count. The files that build and start simulators are left out, because they do
not change what a test observes; if a change of them does, raise ``FLOW`` of :mod:`weft.tb.verify.mutate.campaign`.
"""

import ast
import functools
import hashlib
from pathlib import Path

from weft.tb.sim.flow.imports import candidates
from weft.tb.sim.flow.sources import ROOT

COUNTED = ("tb", "model", "driver")     # a change of the gateware changes the netlist
STARTS = "weft.tb.sim.flow.simulate"        # its imports are not counted


def module_of(file):
    """Return the dotted name of the module in a file of the project."""
    return ".".join(["weft", *Path(file).resolve().relative_to(ROOT).with_suffix("").parts])


def file_of(module):
    """Return the file of a module, the reverse of :func:`module_of`."""
    return ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")


@functools.cache
def digest(module):
    """Return the digest of the code of a module of ``weft`` and of its imports."""
    code = [f"{file.relative_to(ROOT)} {code_of(file)}" for file in sorted(closure(module))]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()[:12]


@functools.cache
def code_of(file):
    """Return a text that changes with the code of a file, not with its comments, docstrings and layout."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        scope = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if scope and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def closure(module):
    """Return the files of a module and of all its imports, direct or indirect, except those through :data:`STARTS`."""
    seen, todo = {STARTS}, [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _imports(name)
    return {file for name in seen - {STARTS} if (file := _file(name))}


def _file(name):
    """Return the file of module ``name``; None if the module is not in a counted part of the project."""
    package, _, inside = name.partition(".")
    if package != "weft" or inside.split(".")[0] not in COUNTED:
        return None
    path = ROOT.joinpath(*inside.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


@functools.cache
def _imports(name):
    file = _file(name)
    if file is None:
        return ()
    return tuple(candidates(file, name if file.name == "__init__.py" else name.rpartition(".")[0]))
