"""Fakes and the simulator of the core, shipped so that extensions can be tried the same way."""
