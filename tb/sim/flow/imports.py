"""Imports of Python files, including imports inside functions."""

import ast
import functools
import importlib.util

STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")   # fields of a statement that hold other statements


@functools.cache
def imports(file):
    """Return the import statements of a Python file, including those inside functions, as nodes of :mod:`ast`."""
    return import_statements(file.read_bytes())


def import_statements(text):
    """Return the import statements of the source text of a file; see :func:`imports`."""
    found, todo = [], [ast.parse(text)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        for name in STATEMENTS:
            todo += getattr(node, name, ())
    return tuple(found)


def names(statements, package):
    """Yield ``(module, name)`` for each import of ``statements`` in ``package``.

    Relative modules are resolved. The name is None where the module itself is imported.
    """
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        else:
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from ((module, alias.name) for alias in node.names)


def candidates(file, package):
    """Yield the dotted names that a file in ``package`` imports: modules, and names in them that may be modules."""
    for module, name in names(imports(file), package):
        yield module
        if name is not None:
            yield f"{module}.{name}"
