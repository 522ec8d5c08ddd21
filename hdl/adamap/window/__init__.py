"""Bitmap window: verdicts, holes, cumulative PSN, and the control operations of a QP's lists."""
