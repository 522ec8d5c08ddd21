"""The two ends of the end-to-end benches, and their addresses."""

SIDES = ("a", "b")
PEER = {"a": "b", "b": "a"}
MAC = {"a": 0x02_00_00_00_00_0A, "b": 0x02_00_00_00_00_0B}
IP = {"a": 0x0A_00_00_01, "b": 0x0A_00_00_02}
