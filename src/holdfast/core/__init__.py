"""Decisions. Pure: no I/O, no clock, no thread, no randomness; imports nothing else of Holdfast."""
