"""How losses are noticed and recovered: a file for each scheme; ``dispatch`` knows them all."""
