"""The job of the elastic tests, which also says on which node each rank is, and what it finds there."""

from __future__ import annotations

import os
from typing import Any

import holdfast.train as train
from support.elastic import elastic_job
from support.elastic.elastic_job import node_id, note


def train_fn(config: dict[str, Any]) -> str:
    context = train.get_context()
    note(config, "node", context.get_world_rank(), node_id())
    return elastic_job.train_fn(config)


def tell_devices(config: dict[str, Any]) -> None:
    """What a worker with GPUs is given; there need be none."""
    from holdfast.worker import session

    rank, local_rank = train.get_context().get_world_rank(), train.get_context().get_local_rank()
    note(config, "devices", rank, local_rank, os.environ.get("CUDA_VISIBLE_DEVICES"), session.current().devices)
    note(config, "env", rank, os.environ.get("OF_THE_RUNTIME_ENV"), node_id())
    train.report({"rank": rank})
