"""MLflow, W&B, Comet and Aim by stand-ins for their modules that note every call."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from holdfast.air.integrations.mlflow import setup_mlflow
from holdfast.air.integrations.wandb import setup_wandb
from holdfast.train import Checkpoint, checks
from holdfast.tune.logger.aim import AimLoggerCallback
from holdfast.tune.logger.comet import CometLoggerCallback
from holdfast.tune.logger.mlflow import MLflowLoggerCallback
from holdfast.tune.logger.wandb import WandbLoggerCallback
from support.tune.logged_trial import LoggedTrial, result


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


@pytest.mark.parametrize(
    ("make", "name"), [(MLflowLoggerCallback, "mlflow"), (WandbLoggerCallback, "wandb"), (AimLoggerCallback, "aim")]
)
def test_a_service_that_is_not_installed_is_named(make: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (name, f"{name}.tracking", f"{name}.sdk"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"pip install '?{name}"):
        make().setup()


def test_comet_gets_an_experiment_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notes = Notes()
    names = "set_name add_tags log_other log_others log_parameters log_metrics log_system_info log_artifact end"
    experiment = SimpleNamespace(**{name: notes.call(name) for name in names.split()})
    module, config = ModuleType("comet_ml"), ModuleType("comet_ml.config")
    module.Experiment = notes.call("online", experiment)  # type: ignore[attr-defined]
    module.Artifact = notes.call("artifact", SimpleNamespace(add=notes.call("add")))  # type: ignore[attr-defined]
    config.set_global_experiment = notes.call("global")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comet_ml", module)
    monkeypatch.setitem(sys.modules, "comet_ml.config", config)
    trial = LoggedTrial(checkpoint=Checkpoint(tmp_path))
    logger = CometLoggerCallback(tags=["t"], save_checkpoints=True, workspace="w")
    logger.setup()
    logger.log_trial_start(trial)
    logger.log_trial_result(0, trial, result(2, eval={"loss": 0.5}, done=False, pid=7, trial_id="t1", config={"a": 1}))
    logger.log_trial_save(trial)
    logger.log_trial_end(trial)
    ((_, options),) = notes.of("online")
    assert options["workspace"] == "w"
    assert options["log_git_metadata"] is False
    assert notes.of("global") == [((None,), {})]
    parameters = [(({"lr": 0.1, "layers/units": 8},), {}), (({"a": 1},), {"step": 2})]
    assert notes.of("log_parameters") == parameters
    assert notes.of("log_metrics") == [
        (({"training_iteration": 2, "time_total_s": 3.0, "eval/loss": 0.5},), {"step": 2})
    ]
    assert notes.of("log_others") == [(({"trial_id": "t1"},), {})]
    assert notes.of("log_system_info") == [(("pid", 7), {})]
    assert notes.of("add") == [((str(tmp_path),), {})]
    assert len(notes.of("end")) == 1
    with pytest.raises(ValueError, match="Comet takes artifacts online only"):
        CometLoggerCallback(online=False, save_checkpoints=True)
    monkeypatch.setitem(sys.modules, "comet_ml", None)
    with pytest.raises(ImportError, match="pip install comet-ml"):
        CometLoggerCallback().setup()


def test_aim_gets_a_run_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()

    class Run(dict[str, Any]):
        track, close = staticmethod(notes.call("track")), staticmethod(notes.call("close"))

    run = Run()
    module = ModuleType("aim.sdk")
    module.Run = notes.call("run", run)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aim", ModuleType("aim"))
    monkeypatch.setitem(sys.modules, "aim.sdk", module)
    trial = LoggedTrial(local_path="/runs/search/trial", evaluated_params={"lr": 0.1, "kind": object})
    logger = AimLoggerCallback(metrics=["loss", "nan"], log_system_params=False)
    logger.setup()
    logger.log_trial_start(trial)
    logger.log_trial_result(0, trial, result(2, loss=0.5, other=1.0, nan=float("nan"), epoch=7))
    logger.log_trial_end(trial)
    assert notes.of("run") == [((), {"repo": "/runs/search", "experiment": "search", "log_system_params": False})]
    assert run == {"trial_id": "t1", "trial_log_dir": "/runs/search/trial", "hparams": {"lr": 0.1}}
    assert notes.of("track") == [((0.5,), {"name": "ray/tune/loss", "step": 2, "context": None, "epoch": 7})]
    assert len(notes.of("close")) == 1
    with pytest.raises(ValueError, match="nothing would be tracked"):
        AimLoggerCallback(metrics=[])


def test_sessions_of_ones_own(monkeypatch: pytest.MonkeyPatch, wandb: Notes) -> None:
    """Outside of a worker there is no trial to name them for."""
    setup_wandb({"lr": 1}, api_key="secret", project="p")
    assert wandb.of("login") == [((), {"key": "secret"})]
    options = {"resume": "allow", "allow_val_change": True, "config": {"lr": 1}, "project": "p"}
    assert wandb.of("init") == [((), options)]
    notes, module = Notes(), ModuleType("mlflow")
    answers = {"get_experiment_by_name": None, "create_experiment": "e1"}
    for name in ("set_tracking_uri", "start_run", "log_params", *answers):
        setattr(module, name, notes.call(name, answers.get(name)))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    with pytest.raises(ValueError, match="create_experiment_if_not_exists=True"):
        setup_mlflow({}, experiment_name="mine")
    found = setup_mlflow(
        {"a": {"b": 1}},
        tracking_uri="file:x",
        experiment_name="mine",
        create_experiment_if_not_exists=True,
        tags={"t": 1},
    )
    assert found is module
    assert notes.of("start_run") == [((), {"experiment_id": "e1", "run_name": "mine", "tags": {"t": 1}})]
    assert notes.of("log_params") == [(({"a/b": 1},), {})]
