"""Synthesizable Amaranth blocks, and the contracts shared by hardware and software."""
