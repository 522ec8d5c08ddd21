"""The worked examples, which are no modules of the package: loaded from their folder."""

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
