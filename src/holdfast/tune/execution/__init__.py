"""Paths that scripts from Ray import from; what runs trials is in ``tune/experiment``."""
