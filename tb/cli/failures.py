"""How a command ends that cannot do its work: one sentence on standard error, exit status 1."""

import sys

import typer

FAILED = 1


def needs(extra):
    """Tell which extra to install when an import fails that it would have brought."""
    class Needs:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, _traceback):
            if kind is not None and issubclass(kind, ModuleNotFoundError) and not (error.name or "").startswith("weft"):
                print(f"weft: this command needs the Python package {error.name!r}; "
                      f"install it with: pip install 'weft-rnic[{extra}]'", file=sys.stderr)
                raise typer.Exit(FAILED) from None
    return Needs()
