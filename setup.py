"""The packages of the distribution: every folder with code below hdl, model, driver and tb.

Tests are left out, and the tools that work on a checkout only.
"""

from setuptools import find_namespace_packages, setup

setup(packages=[f"weft.{package}" for package in find_namespace_packages(
    include=["hdl*", "model*", "driver*", "tb*"],
    exclude=["tb.test*", "tb.verify.document*", "tb.verify.structure*", "*__pycache__*"])])
