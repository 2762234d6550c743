"""JAX over two workers, with checkpoints that Orbax writes from both, into the run's storage."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import train
from holdfast.train.jax import JaxTrainer
from support.frameworks.framework_job import note, run, strike

STEPS, EVERY = 6, 2


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    context, checkpointer = train.get_context(), ocp.StandardCheckpointer()
    split = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
    first = np.arange(8, dtype=np.float32)
    state: Any = {"w": jax.make_array_from_callback(first.shape, split, lambda at: first[at]), "step": 0}
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = checkpointer.restore(os.path.join(directory, "state"), state)
    grow = jax.jit(lambda w: w * 1.5 + 1)
    for number in range(int(state["step"]) + 1, STEPS + 1):
        state = {"w": grow(state["w"]), "step": number}
        path = context.get_storage().build_checkpoint_path_from_name(f"step-{number}")
        if number % EVERY == 0:
            checkpointer.save(os.path.join(path, "state"), state, force=True)
        strike(config, number)  # while Orbax may still be writing
        checkpointer.wait_until_finished()
        saved = train.Checkpoint(path) if number % EVERY == 0 else None
        train.report({"step": number}, saved, checkpoint_upload_mode=train.CheckpointUploadMode.NO_UPLOAD)


def digest(directory: str) -> bytes:
    target = {"w": np.zeros(8, np.float32), "step": 0}
    found = ocp.StandardCheckpointer().restore(os.path.join(directory, "state"), target)
    return bytes(np.asarray(found["w"]).tobytes())


if __name__ == "__main__":
    run(JaxTrainer, train_fn, digest, "step")
