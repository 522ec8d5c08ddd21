"""Command Queue: executes the driver's commands and sends responses.

``processor`` takes one command after the other; ``check`` checks its fields, ``qp_commands`` executes
those on QPs, ``qp_port`` serialises changes of the QP table, ``page_writer`` fills the page table
from host memory, ``statistics`` writes the counters to it.
"""
