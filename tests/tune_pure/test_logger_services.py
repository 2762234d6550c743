"""TensorBoard's files as a reader sees them; MLflow and W&B by stand-ins for their modules that note every call."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from logged_trial import LoggedTrial, result

from holdfast.train import checks
from holdfast.tune.logger import TBXLoggerCallback, default_loggers
from holdfast.tune.logger.mlflow import MLflowLoggerCallback
from holdfast.tune.logger.tensorboardx import available_writer, curves, hparams
from holdfast.tune.logger.wandb import WandbLoggerCallback


def events(directory: str) -> Iterator[Any]:
    """The records of all event files: length, checksum, body, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(Path(directory).glob("events.*")):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack_from("<Q", data)
            yield Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]


def test_tensorboard_gets_the_numbers_of_every_result_and_the_parameters(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    trial = LoggedTrial(local_path=str(tmp_path))
    logger = TBXLoggerCallback()
    for step in (1, 2):
        metrics = result(step, eval={"loss": 1 / step}, note="text", bad=math.nan)
        logger.on_trial_result(iteration=step, trials=[trial], trial=trial, result=metrics)
    logger.on_trial_complete(iteration=3, trials=[trial], trial=trial)
    found = [(e.step, v.tag, v.simple_value) for e in events(str(tmp_path)) for v in e.summary.value]
    assert [value for value in found if value[1] == "holdfast/tune/eval/loss"] == [
        (1, "holdfast/tune/eval/loss", 1.0),
        (2, "holdfast/tune/eval/loss", 0.5),
    ]
    tags = {tag for _, tag, _ in found}
    assert tags == {"holdfast/tune/eval/loss", *(tag for tag in tags if tag.startswith("_hparams_/"))}
    assert len(tags) > 1


def test_what_tensorboard_draws_and_takes_as_parameters() -> None:
    assert curves({"config": {"a": 1}, "pid": 1, "a": {"b": 2, "c": math.nan}, "ok": True}) == {"holdfast/tune/a/b": 2}
    assert hparams({"lr": 1, "name": "x", "on": True, "none": None, "layers": [1, 2]}) == {
        "lr": 1.0,
        "name": "x",
        "on": True,
        "none": "None",
        "layers": "[1, 2]",
    }


def test_without_a_writer_of_event_files_tensorboard_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert available_writer() is None
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        TBXLoggerCallback()


def test_tensorboard_is_a_default_when_something_writes_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert isinstance(default_loggers()[-1], TBXLoggerCallback)


class Notes(list[tuple[Any, ...]]):
    """Calls of what it stands for: name, positional and keyword arguments."""

    def call(self, name: str, answer: Any = None) -> Any:
        def note(*args: Any, **kwargs: Any) -> Any:
            self.append((name, args, kwargs))
            return answer

        return note

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self if call[0] == name]


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Notes:
    notes = Notes()
    run = SimpleNamespace(info=SimpleNamespace(run_id="run-1"))
    answers = {"get_experiment_by_name": None, "create_experiment": "e1", "search_runs": [], "create_run": run}
    calls = ["log_param", "log_metric", "log_artifacts", "set_terminated", *answers]
    client = SimpleNamespace(**{name: notes.call(name, answers.get(name)) for name in calls})
    module = ModuleType("mlflow.tracking")
    module.MlflowClient = notes.call("client", client)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", module)
    return notes


def test_mlflow_gets_a_run_a_trial(mlflow: Notes) -> None:
    trial = LoggedTrial(local_path="somewhere")
    logger = MLflowLoggerCallback("file:x", experiment_name="mine", tags={"owner": "me"}, save_artifact=True)
    logger.setup()
    logger.log_trial_start(trial)
    logger.log_trial_start(trial)  # retried: the same run
    logger.log_trial_result(0, trial, result(3, loss=0.5, note="text", config=trial.config))
    logger.log_trial_end(trial, failed=True)
    assert mlflow.of("client") == [((), {"tracking_uri": "file:x", "registry_uri": None})]
    assert mlflow.of("create_experiment") == [(("mine",), {})]
    tags = {"owner": "me", "trial_name": "train_t1", "holdfast.trial": "t1"}
    assert mlflow.of("create_run") == [(("e1",), {"run_name": "train_t1", "tags": tags})]
    assert mlflow.of("log_param") == [(("run-1", "lr", 0.1), {}), (("run-1", "layers/units", 8), {})]
    assert mlflow.of("log_metric") == [
        (("run-1", "training_iteration", 3.0), {"step": 3}),
        (("run-1", "time_total_s", 4.5), {"step": 3}),
        (("run-1", "loss", 0.5), {"step": 3}),
    ]
    assert mlflow.of("log_artifacts") == [(("run-1", "somewhere"), {})]
    assert mlflow.of("set_terminated") == [(("run-1",), {"status": "FAILED"})]


def test_mlflow_logs_parameters_late_if_it_is_asked_to(mlflow: Notes) -> None:
    logger = MLflowLoggerCallback(log_params_on_trial_end=True)
    logger.setup()
    logger.log_trial_start(LoggedTrial())
    assert not mlflow.of("log_param")
    logger.log_trial_end(LoggedTrial(config={"lr": 0.7}))
    assert mlflow.of("log_param") == [(("run-1", "lr", 0.7), {})]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Notes:
    notes = Notes()
    config = SimpleNamespace(update=notes.call("config"))
    run = SimpleNamespace(config=config, **{n: notes.call(n) for n in ("log", "finish", "log_artifact")})
    module = ModuleType("wandb")
    for name, answer in (("login", None), ("init", run), ("Artifact", SimpleNamespace(add_dir=notes.call("add_dir")))):
        setattr(module, name, notes.call(name, answer))
    monkeypatch.setitem(sys.modules, "wandb", module)
    return notes


def test_wandb_gets_a_run_a_trial_by_the_trials_id(wandb: Notes, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    trial = LoggedTrial(checkpoint=SimpleNamespace(path="there"))
    logger = WandbLoggerCallback("project", api_key_file=str(key), excludes=["lr"], upload_checkpoints=True, mode="x")
    logger.setup()
    logger.log_trial_start(trial)
    logger.log_trial_result(0, trial, result(2, eval={"loss": 0.5}, done=False, pid=7, config=trial.config))
    logger.log_trial_save(trial)
    logger.log_trial_end(trial)
    assert wandb.of("login") == [((), {"key": "secret"})]
    ((_, options),) = wandb.of("init")
    assert options.items() >= {"id": "t1", "project": "project", "resume": "allow", "mode": "x"}.items()
    assert options["config"] == {"layers": {"units": 8}}
    metrics = {"training_iteration": 2.0, "time_total_s": 3.0, "eval/loss": 0.5}
    assert wandb.of("log") == [((metrics,), {"step": 2})]
    assert wandb.of("config") == [(({"pid": 7},), {"allow_val_change": True})]
    assert wandb.of("add_dir") == [(("there",), {})]
    assert wandb.of("finish") == [((), {"exit_code": 0})]


def test_wandb_finishes_what_the_experiment_leaves_open(wandb: Notes) -> None:
    logger = WandbLoggerCallback("project")
    logger.setup()
    logger.log_trial_start(LoggedTrial())
    logger.on_experiment_end(trials=[])
    assert len(wandb.of("finish")) == 1
    with pytest.raises(ValueError, match="api_key"):
        WandbLoggerCallback(api_key="a", api_key_file="b")


def test_wandb_says_which_options_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_warned", set())
    with pytest.warns(UserWarning, match="upload_timeout=.: has no effect"):
        WandbLoggerCallback("project", upload_timeout=5)


@pytest.mark.parametrize(("make", "name"), [(MLflowLoggerCallback, "mlflow"), (WandbLoggerCallback, "wandb")])
def test_a_service_that_is_not_installed_is_named(make: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (name, f"{name}.tracking"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"pip install '?{name}"):
        make().setup()
