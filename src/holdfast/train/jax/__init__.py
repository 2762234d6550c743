"""JAX over the workers of a run: one program on the devices of all of them, on CPUs too."""

from __future__ import annotations

from holdfast.engine.prefork import prefork
from holdfast.train.integrations import preload_in_workers, require

require(__name__, "jax", "jax")

from holdfast.train.jax.jax_config import JaxConfig  # noqa: E402
from holdfast.train.jax.jax_trainer import JaxTrainer  # noqa: E402

__all__ = ["JaxConfig", "JaxTrainer"]

preload_in_workers(__name__)
prefork(JaxConfig.essential, [*JaxConfig.preload, "holdfast.train.payload", "holdfast.train.api", __name__])
