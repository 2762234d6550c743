"""Paths that scripts from Ray import from."""
