"""Tests of the PCIe room and its blocks."""
