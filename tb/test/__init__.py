"""Tests, in folders that mirror the tree; nothing imports them."""
