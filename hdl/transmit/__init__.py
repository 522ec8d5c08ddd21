"""Transmit: descriptors become packets; packets become frames.

``segment`` cuts descriptors, ``merge`` puts retransmissions first, ``inline`` keeps payload that came with them,
``check`` checks, translates and asks for the payload, ``header`` builds headers, ``payload`` cleans payload beats,
``frame`` puts both together, ``seal`` appends the ICRC, ``send_buffer`` holds frames until they are complete, and
``send_crossing`` does so on their way to a MAC with a clock of its own.
"""
