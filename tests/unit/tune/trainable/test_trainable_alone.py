"""A class trainable without a trial around it, as one is tried out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.train import Checkpoint
from holdfast.tune.trainable import Trainable


class Walk(Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        config["changed"] = True
        self.at = 0
        self.log: list[dict[str, Any]] = []
        self.cleaned = False

    def step(self) -> dict[str, Any]:
        self.at += self.config["stride"]
        return {"at": self.at, "timesteps_this_iter": 10, "episodes_this_iter": 2, "done": self.at > 6}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"at": self.at}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.at = checkpoint["at"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return bool(new_config.get("can"))

    def log_result(self, result: dict[str, Any]) -> None:
        self.log.append(result)

    def cleanup(self) -> None:
        self.cleaned = True

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        return dict.fromkeys(export_formats, export_dir)


def test_train_completes_the_result() -> None:
    walk = Walk({"stride": 3})
    result = walk.train()
    assert (result["at"], result["training_iteration"], result["done"]) == (3, 1, False)
    assert (result["timesteps_total"], result["episodes_total"], result["timesteps_since_restore"]) == (10, 2, 10)
    assert (result["pid"], result["trial_id"], result["config"]) == (os.getpid(), "default", {"stride": 3})
    assert walk.log == [result]
    assert (walk.trial_name, walk.trial_resources, walk.is_actor()) == ("default", None, False)
    assert walk.get_current_ip_pid()[1] == os.getpid()
    assert walk.get_state()["last_result"] == result
    assert walk.get_config() == {"stride": 3}
    assert set(walk.get_auto_filled_metrics(debug_metrics_only=True)) == {
        *("date", "hostname", "node_ip", "pid", "timestamp", "trial_id")
    }


def test_a_step_may_say_how_long_it_took_and_when_it_was() -> None:
    class Timed(Walk):
        def step(self) -> dict[str, Any]:
            return {"time_this_iter_s": 2.0, "timestamp": 77, "training_iteration": 9}

    timed = Timed({})
    first, second = timed.train(), timed.train()
    assert (first["time_this_iter_s"], second["time_total_s"], second["timestamp"]) == (2.0, 4.0, 77)
    assert (second["training_iteration"], timed.training_iteration) == (9, 2)


def test_save_and_restore(tmp_path: Path) -> None:
    walk = Walk({"stride": 1})
    walk.train(), walk.train()
    given = walk.save(str(tmp_path / "here"))
    assert given.metrics["at"] == 2
    assert given.checkpoint == Checkpoint(tmp_path / "here")
    for source in (given, given.checkpoint, str(tmp_path / "here"), tmp_path / "here"):
        other = Walk({"stride": 1})
        other.restore(source)
        assert (other.at, other.iteration) == (2, 2)
        result = other.train()
        assert (result["training_iteration"], result["iterations_since_restore"]) == (3, 1)
        assert (result["timesteps_total"], result["timesteps_since_restore"], result["episodes_total"]) == (30, 10, 6)


def test_save_without_a_directory_makes_one() -> None:
    walk = Walk({"stride": 1})
    saved = walk.save()
    try:
        walk.at = 9
        walk.restore(saved)
        assert walk.at == 0
    finally:
        shutil.rmtree(saved.checkpoint.path)


def test_train_buffered_ends_with_done_and_with_a_full_buffer() -> None:
    assert len(Walk({"stride": 3}).train_buffered(60.0)) == 3
    assert len(Walk({"stride": 1}).train_buffered(60.0, max_buffer_length=2)) == 2
    assert len(Walk({"stride": 1}).train_buffered(0.0)) == 1


def test_reset_starts_over_if_the_trainable_can() -> None:
    walk = Walk({"stride": 1})
    walk.train()
    assert not walk.reset({"stride": 2})
    assert walk.reset({"stride": 2, "can": True})
    assert (walk.iteration, walk.config["stride"]) == (0, 2)


def test_stop_cleans_up_and_models_are_exported() -> None:
    walk = Walk({"stride": 1})
    walk.stop()
    assert walk.cleaned
    assert walk.export_model("onnx", "somewhere") == {"onnx": "somewhere"}
    logdir = walk.logdir
    try:
        assert os.path.isdir(logdir)
        assert walk.logdir == logdir
        assert walk.export_model(["a"]) == {"a": logdir}
    finally:
        os.rmdir(logdir)


def test_what_is_not_overridden_says_so() -> None:
    empty = Trainable()
    for method, arguments in (("step", ()), ("save_checkpoint", ("x",)), ("load_checkpoint", ({},))):
        with pytest.raises(NotImplementedError, match=f"Trainable.{method}"):
            getattr(empty, method)(*arguments)
    assert (empty.default_resource_request({}), empty.resource_help({}), empty.reset_config({})) == (None, "", False)
