"""The packages of the distribution: every folder with code below hdl, model, driver and tb, without the tests."""

from setuptools import find_namespace_packages, setup

setup(packages=[f"weft.{package}" for package in find_namespace_packages(
    include=["hdl*", "model*", "driver*", "tb*"], exclude=["tb.test*", "*__pycache__*"])])
