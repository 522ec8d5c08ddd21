"""Random operations of all kinds, compared with the memory contents that they must leave: functional cards and RTL."""
