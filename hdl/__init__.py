"""Synthesizable Amaranth blocks, and the contracts that hardware and software share."""
