"""Paths that scripts from Ray import integrations from."""
