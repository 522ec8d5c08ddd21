"""The knitting buffer: Adamap nodes, their blocks, and who has them."""
