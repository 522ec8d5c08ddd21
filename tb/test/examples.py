"""Loader of the worked examples, which are not modules of the package."""

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
