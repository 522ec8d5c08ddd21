"""Pacing: descriptors wait in a pool until it is time for their next packet.

``wheel`` holds QPs by the time of their next packet, ``scan`` finds those that wait longer than it reaches, ``pool``
holds descriptors in a list per QP and ring, ``engine`` serves one QP after the other, and ``pacer`` joins them.
"""
