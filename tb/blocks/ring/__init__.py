"""Tests of ring readers, ring writers and the status block."""
