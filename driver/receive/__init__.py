"""The receiving side of a QP."""
