"""Modules that Ray has in ``ray.train.v2.api``, for scripts that import from there."""
