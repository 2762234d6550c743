"""Kept for scripts that import ``holdfast.metrics.callbacks``."""
