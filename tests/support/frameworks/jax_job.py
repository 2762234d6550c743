"""One JAX program over two workers: its arrays are spread over both, and a checkpoint is plain NumPy."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import train
from holdfast.train.v2.jax import JaxTrainer
from support.frameworks.framework_job import note, run, strike

STEPS, EVERY = 10, 2


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    context = train.get_context()
    assert (jax.process_index(), jax.process_count()) == (context.get_world_rank(), context.get_world_size())
    assert len(jax.devices()) == context.get_world_size()
    mesh = Mesh(jax.devices(), ("data",))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8)).astype(np.float32)
    y = (x @ rng.normal(size=(8, 1))).astype(np.float32)
    xs, ys = (jax.make_array_from_callback(a.shape, split, lambda at, a=a: a[at]) for a in (x, y))

    @jax.jit
    def step(w: Any, xs: Any, ys: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(xs @ w) - ys) ** 2))(w)
        return w - 0.1 * gradient, loss

    start, values = 0, np.zeros((8, 1), np.float32)
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            with np.load(Path(directory) / "state.npz") as saved:
                start, values = int(saved["step"]), saved["w"]
    w = jax.device_put(values, whole)
    for number in range(start + 1, STEPS + 1):
        w, loss = step(w, xs, ys)
        strike(config, number)
        with tempfile.TemporaryDirectory() as directory:
            reported = None
            if number % EVERY == 0 and context.get_world_rank() == 0:
                np.savez(Path(directory) / "state.npz", step=number, w=np.asarray(w))
                reported = train.Checkpoint.from_directory(directory)
            train.report({"step": number, "loss": float(loss)}, reported)


def digest(directory: str) -> bytes:
    with np.load(Path(directory) / "state.npz") as saved:
        return bytes(saved["w"].tobytes())


if __name__ == "__main__":
    run(JaxTrainer, train_fn, digest, "step")
