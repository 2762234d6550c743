"""Fakes, contracts and the simulator of the core. They are shipped so that extensions can be tested in the same way."""
