"""What the jobs of the frameworks have in common: ``python X_job.py STORAGE NAME CONFIG`` with CONFIG as JSON.

A job trains a small model, strikes once where CONFIG says so, and prints as JSON a digest of its final model, the
progress that its reports show, and what it noted. ``"restore"`` continues the run with the trainer's ``restore``,
``"source"`` names a run, and after which of its rounds a new one starts. ``"joins"`` and ``"lost"`` say after which
round a second node joins and is lost; the run then has one worker or two.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast
from holdfast import train
from holdfast.worker import session

CHANGES_WITHIN_S = 60.0


def strike(config: dict[str, Any], at: int) -> None:
    """In the train function, after so many rounds. ``"strikes"`` in the config say after which round a rank, or the
    driver, is killed, once."""
    home = Path(config["home"])
    note(config, "round", at)
    for victim, when in config.get("strikes", {}).items():
        if when != at or train.get_context().get_world_rank() != (0 if victim == "driver" else int(victim)):
            continue
        try:
            (home / f"struck-{victim}").touch(exist_ok=False)
        except FileExistsError:
            continue
        note(config, f"kill {victim}", at)
        os.kill(int((home / "driver").read_text()) if victim == "driver" else os.getpid(), signal.SIGKILL)
        time.sleep(60)  # a worker whose driver was killed is about to be killed


def note(config: dict[str, Any], what: str, at: Any) -> None:
    line = json.dumps([what, train.get_context().get_world_rank(), at, time.monotonic()])
    with open(Path(config["home"]) / "notes", "a") as file:
        file.write(f"{line}\n")


def await_change(config: dict[str, Any], at: int) -> None:
    """In the train function, in the round after a node has joined or is lost: until that is known here."""
    workers = train.get_context().get_world_size()
    deadline = time.monotonic() + CHANGES_WITHIN_S
    while at == config.get("joins", -1) + 1 and workers == 1 and session.current()._notice is None:
        assert time.monotonic() < deadline, "the new node was never used"
        time.sleep(0.01)
    if at == config.get("lost", -1) + 1 and workers == 2:
        time.sleep(CHANGES_WITHIN_S)  # until the attempt ends
        raise AssertionError("the node was never lost")


class Nodes(train.UserCallback):
    """What happens to the nodes, when the metric that counts the rounds says so."""

    def __init__(self, cluster: holdfast.LocalCluster, config: dict[str, Any], metric: str) -> None:
        self._cluster, self._config, self._metric = cluster, config, metric

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if metrics[0][self._metric] == self._config["joins"] and len(metrics) == 1:
            self._cluster.add_node(cpus=1, node_id="second")
        elif metrics[0][self._metric] == self._config["lost"] and len(metrics) == 2:
            self._cluster.remove_node("second")


@contextmanager
def _nodes(config: dict[str, Any], metric: str) -> Iterator[dict[str, Any]]:
    """More arguments of the RunConfig."""
    if "joins" not in config:
        yield {}
        return
    with holdfast.LocalCluster() as cluster:
        cluster.add_node(cpus=1, node_id="first")
        yield {"engine": cluster, "callbacks": [Nodes(cluster, config, metric)]}


def run(
    trainer_class: type[train.DataParallelTrainer],
    train_fn: Any,
    digest: Callable[[str], bytes],
    metric: str,
    **arguments: Any,
) -> None:
    """``digest`` gets the directory of the last checkpoint; ``metric`` is the one that counts the rounds. The other
    arguments are the trainer's."""
    storage, name, config = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    config["home"] = str(storage)
    (storage / "driver").write_text(str(os.getpid()))
    with _nodes(config, metric) as engine:
        result = _trainer(trainer_class, train_fn, storage / name, config, engine, metric, arguments).fit()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        model = digest(directory)
    rounds = result.metrics_dataframe[metric].tolist()
    notes = [json.loads(line) for line in (storage / "notes").read_text().splitlines()]
    found = {"digest": hashlib.sha256(model).hexdigest(), "model": model.hex()}
    print(json.dumps({**found, "rounds": rounds, "metrics": result.metrics, "notes": notes}))


def _trainer(
    trainer_class: type[train.DataParallelTrainer],
    train_fn: Any,
    path: Path,
    config: dict[str, Any],
    engine: dict[str, Any],
    metric: str,
    arguments: dict[str, Any],
) -> train.DataParallelTrainer:
    if config.get("restore"):
        assert trainer_class.can_restore(path)
        return trainer_class.restore(path, train_fn, train_loop_config=config, **arguments)
    assert not trainer_class.can_restore(path)
    return trainer_class(
        train_fn,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(
            num_workers=(1, 2) if engine else config.get("workers", 2), elastic_resize_monitor_interval_s=0.0
        ),
        run_config=train.RunConfig(
            name=path.name,
            storage_path=str(path.parent),
            failure_config=train.FailureConfig(max_failures=config.get("max_failures", 1)),
            verbose=0,
            **engine,
        ),
        resume_from_checkpoint=_source(*config["source"], metric) if "source" in config else None,
        **arguments,
    )


def _source(run: str, after: int, metric: str) -> train.Checkpoint:
    """The checkpoint of another run after so many rounds."""
    return next(found for found, metrics in train.Result.from_path(run).best_checkpoints if metrics[metric] == after)
