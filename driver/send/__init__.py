"""The sending side of a QP."""
