"""Names that Ray has in ``ray.train.v2``, for scripts that move from there."""
