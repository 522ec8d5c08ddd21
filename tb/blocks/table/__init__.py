"""Tests of tables and translation."""
