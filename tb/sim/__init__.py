"""Simulation: simulator flow, synthesis flow, hosts, links and PCIe around two cards, judges, waves."""
