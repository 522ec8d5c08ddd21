"""From a component to a simulator run and its verdict."""
