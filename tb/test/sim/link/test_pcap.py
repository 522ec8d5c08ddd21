"""Tests that captures contain the written frames."""

from weft.tb.sim.link.pcap import PcapWriter, read_pcap


def test_pcap_keeps_nanoseconds(tmp_path):
    frames = [(0, b"a" * 60), (1_999_999_999, b"b" * 60), (5_000_000_001, b"x" * 60)]
    with PcapWriter(tmp_path / "x.pcap") as pcap:
        for time_ns, frame in frames:
            pcap.write(time_ns, frame)
    assert read_pcap(tmp_path / "x.pcap") == frames
