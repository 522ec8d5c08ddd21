"""RoCEv2 reliable connections in software, according to the standard (IBTA 1.7, chapter 9 and annex A17)."""
