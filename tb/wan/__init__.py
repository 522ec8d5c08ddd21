"""Tests of the wide-area experiments: closed forms, conservation, and decisions equal to the functional model's."""
