"""Transmit: descriptors become packets; packets become frames.

``segment`` cuts descriptors, ``merge`` gives priority to retransmissions, ``inline`` stores payload from descriptors,
``check`` checks, translates and requests the payload, ``header`` builds headers, ``payload`` clears unused bytes of
payload beats, ``frame`` joins headers and payload, ``seal`` appends the ICRC, ``send_buffer`` holds frames until they
are complete, and ``send_crossing`` does so with a MAC in another clock domain.
"""
