"""Random operations of all kinds over functional cards and RTL, with a comparison of the resulting memory contents."""
