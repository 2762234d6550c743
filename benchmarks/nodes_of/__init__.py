"""Nodes of one machine that come and go, by the same names for each system."""
