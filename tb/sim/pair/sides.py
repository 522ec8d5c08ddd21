"""Sides of the end-to-end benches, and their addresses."""

LETTERS = "abcdefghijklmnop"        # sides of benches with more than two cards
SIDES = ("a", "b")
DIRECTIONS = ("a_to_b", "b_to_a")
PEER = {"a": "b", "b": "a"}
MAC = {side: 0x02_00_00_00_00_0A + n for n, side in enumerate(LETTERS)}
IP = {side: 0x0A_00_00_01 + n for n, side in enumerate(LETTERS)}


class BySide(list):
    """Item of each side, indexed by number or by a name that begins with the side's letter: ``"a"``, ``"a_to_b"``."""

    def __getitem__(self, key):
        return super().__getitem__(LETTERS.index(key[0]) if isinstance(key, str) else key)

    def __setitem__(self, key, thing):
        super().__setitem__(LETTERS.index(key[0]) if isinstance(key, str) else key, thing)

    def items(self):
        """Return pairs of the name of a side and its item."""
        return zip(LETTERS, self, strict=False)
