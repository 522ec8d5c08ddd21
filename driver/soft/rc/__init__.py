"""RoCEv2 reliable connections in software, as the standard has them (IBTA 1.7, chapter 9 and annex A17)."""
