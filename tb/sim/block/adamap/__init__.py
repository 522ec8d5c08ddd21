"""Lists, ports and the QP table around the Adamap subsystem."""
