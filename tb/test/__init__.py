"""Tests, in folders that mirror the tree; no other code imports them."""
