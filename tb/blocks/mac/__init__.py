"""Tests of the MAC edge at a clock of the MAC's own: crossings and resets."""
