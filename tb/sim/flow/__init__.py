"""Simulation flow: from a component to a simulator run and its verdict."""
