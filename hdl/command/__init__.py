"""Command Queue: the driver's commands become table entries, list operations and answers.

``processor`` takes one command after the other; ``check`` judges its fields, ``qp_commands`` carries
out those on QPs, ``qp_port`` serialises changes of the QP table, ``page_writer`` fills the page table
from host memory, ``statistics`` writes the counters to it.
"""
