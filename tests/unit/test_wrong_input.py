"""Sixty wrong inputs, each answered in one or two plain sentences that say what to do."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.cli.main import main
from holdfast.settings import load
from holdfast.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

Call = Callable[[Path], Any]


def loop() -> None: ...


def with_config(config: dict[str, Any]) -> None: ...


def score(config: dict[str, Any]) -> dict[str, float]:
    return {"loss": config["x"]}


def trainer(**options: Any) -> Any:
    return train.DataParallelTrainer(options.pop("fn", loop), **options)


def tuner(space: Any = None, stored: Path | None = None, **config: Any) -> Any:
    run = None if stored is None else RunConfig(storage_path=str(stored), name="search", verbose=0)
    return tune.Tuner(score, param_space=space, tune_config=tune.TuneConfig(**config), run_config=run)


def file_at(directory: Path) -> Path:
    path = directory / "file"
    path.write_text("not a run")
    return path


def setting(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    load()


API: dict[str, tuple[Call, str]] = {
    "no function": (lambda _: trainer(fn=None), "pass a function"),
    "the result of the function": (lambda _: trainer(fn=3), "pass a function"),
    "a config that is a list": (lambda _: trainer(train_loop_config=[1]), "pass a dict"),
    "a run config that is a dict": (lambda _: trainer(run_config={"name": "x"}), "pass a RunConfig"),
    "a scaling config that is a number": (lambda _: trainer(scaling_config=4), "pass a ScalingConfig"),
    "datasets that are a list": (lambda _: trainer(datasets=[1]), "pass a dict"),
    "metadata that cannot be sent": (lambda _: trainer(metadata={"x": object()}), "train_loop_config"),
    "an unpicklable function": (
        lambda path: trainer(fn=lambda: LOCK.acquire(), run_config=RunConfig(storage_path=str(path), verbose=0)).fit(),
        "inside the train function",
    ),
    "an unpicklable config": (
        lambda path: trainer(
            fn=with_config, train_loop_config={"x": LOCK}, run_config=RunConfig(storage_path=str(path), verbose=0)
        ).fit(),
        "inside the train function",
    ),
    "a negative number of workers": (lambda _: ScalingConfig(num_workers=-1), r"at least 0, or \(min, max\)"),
    "a text for workers": (lambda _: ScalingConfig(num_workers="4"), "pass an int"),
    "a range the wrong way round": (lambda _: ScalingConfig(num_workers=(4, 2)), "1 <= min <= max"),
    "a misspelt resource": (lambda _: ScalingConfig(num_workers=1, resources_per_worker={"gpus": 1}), "did you mean"),
    "an unknown placement": (lambda _: ScalingConfig(placement_strategy="NEAR"), "PACK"),
    "a name with a slash": (lambda _: RunConfig(name="a/b"), "Use letters, digits"),
    "a name that is a number": (lambda _: RunConfig(name=3), "pass a str"),
    "an unknown scheme": (lambda _: RunConfig(storage_path="ftp://host/x"), "Use a plain path, file://, s3://"),
    "a broken storage path": (lambda _: RunConfig(storage_path="a\0b"), "remove it"),
    "callbacks that are not callbacks": (lambda _: RunConfig(callbacks=[print]), "UserCallback"),
    "variables that are a list": (lambda _: RunConfig(worker_runtime_env={"env_vars": [1]}), "pass a dict"),
    "failures as text": (lambda _: FailureConfig(max_failures="3"), "pass an int"),
    "a negative time": (lambda _: FailureConfig(hang_timeout_s=-1), "greater than 0"),
    "fail_fast with retries": (lambda _: FailureConfig(max_failures=2, fail_fast=True), "leave max_failures"),
    "no checkpoint kept": (lambda _: CheckpointConfig(num_to_keep=0), "at least 1"),
    "an unknown order": (lambda _: CheckpointConfig(checkpoint_score_order="best"), '"max" or "min"'),
    "a flag that is text": (lambda _: CheckpointConfig(rank_zero_only="yes"), "pass True or False"),
    "fresh that is text": (lambda _: RunConfig(fresh="yes"), "pass True or False"),
    "report outside of training": (
        lambda _: train.report({"x": 1}),
        "Call it in the function that you pass to a trainer",
    ),
    "context outside of training": (
        lambda _: train.get_context().get_world_rank(),
        "Call it in the function that you pass to a trainer",
    ),
    "a checkpoint that does not exist": (
        lambda path: trainer(resume_from_checkpoint=Checkpoint(str(path / "no"))),
        "Pass an existing checkpoint",
    ),
    "a checkpoint as a path": (lambda path: open(Checkpoint(str(path))), "as_directory"),
    "a result of nothing": (lambda path: train.Result.from_path(path / "no"), "<storage_path>/<name>"),
    "a restore of nothing": (lambda path: train.DataParallelTrainer.restore(path / "no", loop), "<storage_path>"),
    "a restore of a file": (lambda path: train.DataParallelTrainer.restore(file_at(path), loop), "<storage_path>"),
    "an engine that is unknown": (
        lambda path: trainer(run_config=RunConfig(storage_path=str(path), engine="slurm")).fit(),
        'use "local" or "ray"',
    ),
    "a search space that is a list": (lambda _: tuner([1]), "pass a dict"),
    "an unknown mode": (lambda _: tuner(metric="loss", mode="best"), '"max" or "min"|"min" or "max"'),
    "no samples": (lambda _: tuner(num_samples=0), "at least 1, or -1 for no limit"),
    "a grid that is a number": (lambda _: tune.grid_search(3), "pass a list of values"),
    "an empty choice": (lambda _: tune.choice([]), "pass at least one value"),
    "a range that is empty": (lambda _: tune.uniform(2, 1), "lower must not be above upper"),
    "a log range from zero": (lambda _: tune.loguniform(0, 1), "must be greater than 0; pass the bound itself"),
    "an unknown trainable": (lambda _: tune.Tuner("nowhere"), "register_trainable"),
    "a trainable that cannot be called": (lambda _: tune.Tuner(3), "pass a function of one argument"),
    "results before fit": (lambda _: tuner({"x": 1}).get_results(), r"call fit\(\) first"),
    "a tuner restored from nothing": (lambda path: tune.Tuner.restore(str(path), score), "<storage_path>"),
    "a scheduler without a metric": (
        lambda path: tuner({"x": 1}, path, scheduler=tune.schedulers.ASHAScheduler()).fit(),
        "pass both to TuneConfig",
    ),
    "resources that do not exist": (lambda _: tune.with_resources(score, {"cpus": 1}), "'cpu'"),
    "an exception as a stopper": (
        lambda _: tuner({"x": 1}) and tune.Tuner(score, run_config=RunConfig(stop=3)),
        "pass a dict, as in",
    ),
    "a settings text": (lambda _: setting(PATCH[0], "HOLDFAST_STORAGE_PATIENCE_S", "soon"), "use a number"),
    "an unknown display": (
        lambda path: (
            setting(PATCH[0], "HOLDFAST_DISPLAY", "shiny")
            or trainer(run_config=RunConfig(storage_path=str(path))).fit()
        ),
        "use one of auto, live",
    ),
    "two numbers of CPUs": (lambda _: holdfast.init(num_cpus=-1), "pass a number, 0 or more"),
}
CLI: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "a run that does not exist": (lambda path: ["show", str(path / "no")], "holdfast ls"),
    "a directory of nothing": (lambda path: ["show", str(path)], "<storage_path>/<name>"),
    "a file as a run": (lambda path: ["verify", str(file_at(path))], "Pass the directory of a run"),
    "a storage path that does not exist": (lambda path: ["ls", str(path / "no")], "Pass the storage_path of your runs"),
    "a script that does not exist": (lambda path: ["run", str(path / "no.py")], "Python file"),
    "a module that does not exist": (lambda _: ["run", "-m", "no_such_module_here"], "Check its name"),
    "workers as text": (lambda path: ["run", "--workers", "many", str(file_at(path))], "as in 4"),
    "a drill without a script": (lambda _: ["drill"], "holdfast drill SCRIPT"),
    "a drill with an unknown fault": (lambda path: ["drill", "--fault", "rain", str(file_at(path))], "worker-kill"),
    "an unknown command": (lambda _: ["shwo", "runs"], "choose from .*'show'"),
    "nothing to compare": (lambda path: ["compare", str(path / "a")], "Pass two or more runs"),
    "an empty path": (lambda _: ["show", ""], "directory or a URL"),
}
LOCK = threading.Lock()
_SENTENCES = re.compile(r"[.!?] (?=[A-Z])")
PATCH: list[pytest.MonkeyPatch] = []
BANNED = re.compile(
    r"\bgo on\b|\bmend|\bis no (?!t\b|longer)|\banew\b|\bnobody\b|\bwhoever\b|\bat once\b|\baway\b|has gone"
    r"|brought back|\broom\b|\bseat"
)


@pytest.fixture(autouse=True)
def _patched(monkeypatch: pytest.MonkeyPatch) -> None:
    PATCH[:] = [monkeypatch]


def answer(call: Call, path: Path) -> str:
    with pytest.raises(Exception) as raised:
        call(path)
    assert not isinstance(raised.value, AssertionError)
    return str(raised.value)


def check(text: str, remedy: str) -> None:
    assert text, "an answer"
    assert len(text) <= 420, text
    assert len(text.strip().splitlines()) == 1, text
    assert len(_SENTENCES.split(text)) <= 2, text
    assert not BANNED.search(text), text
    assert re.search(remedy, text), text


@pytest.mark.parametrize("case", API)
def test_a_wrong_argument(case: str, tmp_path: Path) -> None:
    call, remedy = API[case]
    check(answer(call, tmp_path), remedy)


@pytest.mark.parametrize("case", CLI)
def test_a_wrong_command(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, remedy = CLI[case]
    try:
        code = main(arguments(tmp_path))
    except SystemExit as ended:
        code = int(ended.code or 0)
    seen = capsys.readouterr()
    assert (code, seen.out) == (2, "")
    check(seen.err.strip().splitlines()[-1], remedy)


def test_there_are_sixty() -> None:
    assert len(API) + len(CLI) + len(OF_A_RUN) >= 60


OF_A_RUN: dict[str, tuple[list[str], str]] = {
    "a checkpoint that it does not have": (["checkpoints", "export", "RUN", "best", "--to", "OUT"], "It has:"),
    "the best without a score": (["checkpoints", "export", "RUN", "--best", "--to", "OUT"], "--metric NAME"),
    "the best by an unknown metric": (
        ["checkpoints", "export", "RUN", "--best", "--metric", "accuracy", "--to", "OUT"],
        "Their metrics: step",
    ),
    "a directory that is not empty": (["checkpoints", "export", "RUN", "--to", "FULL"], "Choose an empty directory"),
    "a rank that it does not have": (["logs", "RUN", "--rank", "7"], r"It has: 0\."),
    "an attempt that it does not have": (["logs", "RUN", "--attempt", "7"], r"It has: 1\."),
    "the checkpoint that it resumes from": (
        ["checkpoints", "delete", "RUN", "checkpoint_000001", "--yes"],
        "--force",
    ),
}


def saves() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "state").write_text("1")
        train.report({"step": 1}, checkpoint=Checkpoint.from_directory(directory))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    config = RunConfig(name="run", storage_path=str(storage), verbose=0)
    trainer(fn=saves, scaling_config=ScalingConfig(num_workers=0), run_config=config).fit()
    return storage / "run"


@pytest.mark.parametrize("case", OF_A_RUN)
def test_a_wrong_argument_for_a_run(
    case: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, remedy = OF_A_RUN[case]
    file_at(tmp_path)
    places = {"RUN": finished, "OUT": tmp_path / "out", "FULL": tmp_path}
    code = main([str(places.get(word, word)) for word in words])
    seen = capsys.readouterr()
    assert (code, seen.out) == (2, "")
    check(seen.err.strip().splitlines()[-1], remedy)


def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) in (1, 2)
    check(capsys.readouterr().err.strip().splitlines()[-1], r"pip install 'holdfast\[completion\]'")
