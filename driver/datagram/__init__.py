"""Unreliable datagrams (IBTA 1.7, chapter 9.8.3): packets, queue pairs and multicast groups above the Simple NIC."""
