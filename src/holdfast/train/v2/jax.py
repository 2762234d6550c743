"""``holdfast.train.jax``, under the name that Ray has for it."""

from holdfast.train.jax import JaxConfig, JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
