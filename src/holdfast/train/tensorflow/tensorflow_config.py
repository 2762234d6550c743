"""``TF_CONFIG`` around a train function: the addresses of all workers; each listens on its own.

A worker holds its port until TensorFlow listens there, so no other process can get it in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from holdfast.train import rendezvous
from holdfast.train.config import BackendConfig
from holdfast.train.tensorflow.keras_fit import let_keras_fit


class TensorflowConfig(BackendConfig):
    """How workers find each other. There is nothing to choose: ``MultiWorkerMirroredStrategy`` has the options."""

    essential: ClassVar[tuple[str, ...]] = ("tensorflow",)
    preload: ClassVar[tuple[str, ...]] = ("keras",)

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _InCluster(train_fn)


class _InCluster:
    """Calls a train function in an environment that describes the cluster."""

    def __init__(self, train_fn: Callable[..., Any]) -> None:
        self.train_fn = train_fn

    def __call__(self, *args: Any) -> Any:
        from holdfast.train.api import session_for

        session = session_for("tensorflow.TensorflowTrainer")
        let_keras_fit()
        with rendezvous.held_port(session) as port:
            workers = rendezvous.gather(session, rendezvous.address(session, port))
            task = {"type": "worker", "index": session.rank}
            cluster = json.dumps({"cluster": {"worker": workers}, "task": task})
            with rendezvous.environment({"TF_CONFIG": cluster, "TF_GRPC_REUSE_PORT": "true"}):
                return self.train_fn(*args)
