"""The other end of libibverbs.so.1: cards served to programs of other processes."""
