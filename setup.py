"""The packages of the distribution: every folder with code below hdl, model, driver and tb.

Tests are left out, and the tools that work on a checkout only: ``checkout-only`` of pyproject.toml.
"""

import tomllib
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

ONLY = [Path(name) for name in tomllib.loads(Path("pyproject.toml").read_text())["tool"]["weft"]["checkout-only"]]


def wanted(file):
    """Return whether a file or folder of the checkout belongs to the distribution."""
    return not any(Path(file).is_relative_to(left) for left in ONLY)


class BuildPy(build_py):
    """Build command that leaves out single files too."""

    def find_package_modules(self, package, package_dir):
        return [module for module in super().find_package_modules(package, package_dir) if wanted(module[-1])]

    def find_data_files(self, package, src_dir):
        return list(filter(wanted, super().find_data_files(package, src_dir)))


setup(cmdclass={"build_py": BuildPy}, packages=[
    f"weft.{package}" for package in find_namespace_packages(include=["hdl*", "model*", "driver*", "tb*"])
    if "__pycache__" not in package and wanted(package.replace(".", "/"))])
