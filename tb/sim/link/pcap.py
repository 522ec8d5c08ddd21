"""Writer and reader of pcap files with nanosecond time stamps. Standard library only."""

import struct
from pathlib import Path

MAGIC_NS = 0xA1B23C4D  # classic pcap, nanosecond resolution
LINKTYPE_ETHERNET = 1
SNAP_BYTES = 65535
_FILE = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")


class PcapWriter:
    """Capture file of Ethernet frames (without FCS).

    Every frame is flushed, so that the file of an aborted run can be read.
    """

    def __init__(self, path):
        self._file = open(path, "wb")  # noqa: SIM115 closed by close()
        self._file.write(_FILE.pack(MAGIC_NS, 2, 4, 0, 0, SNAP_BYTES, LINKTYPE_ETHERNET))

    def write(self, time_ns, frame):
        """Append a frame captured at ``time_ns``."""
        seconds, nanoseconds = divmod(round(time_ns), 1_000_000_000)
        self._file.write(_RECORD.pack(seconds, nanoseconds, len(frame), len(frame)) + frame)
        self._file.flush()

    def close(self):
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Captures:
    """Captures of a link in a folder: for each direction, sent and received frames. Without a folder, no captures."""

    def __init__(self, folder):
        self._folder, self._files = folder and Path(folder), []

    def taps(self, direction):
        """Return functions to call with ``(time_ns, frame)`` for sent and for received frames; two None if disabled.

        They write to ``<direction>.sent.pcap`` and ``<direction>.arrived.pcap``.
        """
        if self._folder is None:
            return None, None
        self._folder.mkdir(parents=True, exist_ok=True)
        files = [PcapWriter(self._folder / f"{direction}.{subject}.pcap") for subject in ("sent", "arrived")]
        self._files += files
        return tuple(file.write for file in files)

    def close(self):
        for file in self._files:
            file.close()


def read_pcap(path):
    """Return the frames of a file written by :class:`PcapWriter`: ``[(time_ns, bytes), ...]``."""
    with open(path, "rb") as file:
        text = file.read()
    if _FILE.unpack_from(text)[0] != MAGIC_NS:
        raise ValueError(f"{path} is not a little-endian nanosecond pcap file")
    frames, at = [], _FILE.size
    while at < len(text):
        seconds, nanoseconds, length, _ = _RECORD.unpack_from(text, at)
        at += _RECORD.size
        frames.append((seconds * 1_000_000_000 + nanoseconds, text[at:at + length]))
        at += length
    return frames
