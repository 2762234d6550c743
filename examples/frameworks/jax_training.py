"""One JAX program over two workers, on CPUs too. The guide docs/jax.md explains it."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import train
from holdfast.train.jax import JaxTrainer


@jax.jit
def step(w, x, y):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    return w - 0.1 * gradient, loss


def train_fn():
    mesh = Mesh(jax.devices(), ("data",))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8)).astype("float32")
    xs, ys = (jax.make_array_from_callback(a.shape, split, lambda at, a=a: a[at]) for a in (x, x.sum(1, keepdims=True)))
    start, w = 0, np.zeros((8, 1), "float32")
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory, np.load(f"{directory}/state.npz") as saved:
            start, w = int(saved["step"]), saved["w"]
    w = jax.device_put(w, whole)
    for number in range(start + 1, 11):
        w, loss = step(w, xs, ys)
        with tempfile.TemporaryDirectory() as directory:
            reported = None
            if jax.process_index() == 0:
                np.savez(f"{directory}/state.npz", step=number, w=w)
                reported = train.Checkpoint.from_directory(directory)
            train.report({"step": number, "loss": float(loss)}, reported)


if __name__ == "__main__":
    result = JaxTrainer(
        train_fn,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="jax", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)),
    ).fit()
    print(result.metrics)
