"""What Python files import, those imports too that stand inside functions."""

import ast
import functools
import importlib.util

STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")   # where a statement holds others


@functools.cache
def imports(file):
    """The import statements of a Python file, those inside functions too, as nodes of :mod:`ast`."""
    return import_statements(file.read_bytes())


def import_statements(text):
    """The same of the text of a file."""
    found, todo = [], [ast.parse(text)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        for name in STATEMENTS:
            todo += getattr(node, name, ())
    return tuple(found)


def names(statements, package):
    """``(module, name)`` of what import statements in ``package`` import, with relative modules made whole; the name
    is None where the module itself is imported."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        else:
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from ((module, alias.name) for alias in node.names)


def candidates(file, package):
    """Dotted names that a file in ``package`` imports: modules, and names in them, which may be modules as well."""
    for module, name in names(imports(file), package):
        yield module
        if name is not None:
            yield f"{module}.{name}"
