"""Function trainables in a real process: they report, yield or return."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.train import CheckpointConfig
from holdfast.tune.registry import get_trainable, register_trainable
from holdfast.tune.trainable import Trainable, entry_of, function_entry, with_resources
from support.tune.one_trial import rows, run_trial


class Stub(Trainable):
    """Only a name."""


def test_results_can_be_reported_yielded_and_returned(tmp_path: Path) -> None:
    def reports(config: dict[str, Any]) -> dict[str, int]:
        train.report({"x": config["start"]})
        return {"x": config["start"] + 1}

    def yields(config: dict[str, Any]) -> Iterator[Any]:
        yield {"x": config["start"]}
        yield None
        yield {}
        yield {"x": config["start"] + 1}
        return {"x": config["start"] + 2}

    reported = run_trial(tmp_path / "1", function_entry(reports), {"start": 1})
    assert [row["x"] for row in rows(reported)] == [1, 2]
    yielded = run_trial(tmp_path / "2", function_entry(yields), {"start": 5})
    assert [row["x"] for row in rows(yielded)] == [5, 6, 7]
    assert yielded.return_value is None


def test_a_number_is_the_unnamed_metric(tmp_path: Path) -> None:
    def numbers(_config: dict[str, Any]) -> Iterator[Any]:
        import numpy

        yield 0
        yield 0.5
        yield numpy.float32(0.25)
        yield False

    result = run_trial(tmp_path, function_entry(numbers), {})
    assert [row["_metric"] for row in rows(result)] == [0, 0.5, 0.25]


@pytest.mark.parametrize("output", ["done", [1, 2], {1}])
def test_a_wrong_return_is_the_trials_error(tmp_path: Path, output: Any) -> None:
    def returns(config: dict[str, Any]) -> Any:
        return config["output"]

    with pytest.raises(train.WorkerGroupError, match=f"a {type(output).__name__}: return or yield a dict") as caught:
        run_trial(tmp_path, function_entry(returns), {"output": output})
    (failure,) = caught.value.worker_failures.values()
    assert isinstance(failure, TypeError)


def test_a_wrong_yield_is_the_trials_error(tmp_path: Path) -> None:
    def yields(_config: dict[str, Any]) -> Iterator[Any]:
        yield {"x": 1}
        yield "x"

    with pytest.raises(train.WorkerGroupError, match="the trainable function yielded 'x'"):
        run_trial(tmp_path, function_entry(yields), {})


def test_a_checkpoint_is_found_again(tmp_path: Path) -> None:
    def resumes(config: dict[str, Any]) -> dict[str, int]:
        checkpoint = train.get_checkpoint()
        if checkpoint is None:
            Path(config["work"]).mkdir()
            Path(config["work"], "state").write_text("1")
            train.report({"x": 1}, checkpoint=train.Checkpoint.from_directory(config["work"]))
            while train.get_checkpoint() is None:
                train.get_all_reported_checkpoints()
            raise RuntimeError("once")
        with checkpoint.as_directory() as directory:
            return {"x": int(Path(directory, "state").read_text()) + 1}

    failures = train.FailureConfig(max_failures=1, backoff_s=0)
    config = {"work": str(tmp_path / "work")}
    result = run_trial(tmp_path, function_entry(resumes), config, failure_config=failures)
    assert result.metrics["x"] == 2


class WithCall:
    def __call__(self, config: dict[str, Any]) -> None: ...

    def method(self, config: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    "fn",
    [
        lambda _config: None,
        lambda _config, _more=1: None,
        lambda *_values: None,
        lambda _anything: None,
        functools.partial(lambda _config, _more: None, _more=1),
        WithCall(),
        WithCall().method,
        with_resources(lambda _config: None, {"cpu": 1}),
    ],
)
def test_what_can_be_called_with_a_config_is_a_trainable(fn: Any) -> None:
    function_entry(fn)


async def asynchronous(config: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda: None, "called with one argument, config"),
        (lambda _config, _more: None, r"missing a required argument: '_more'.*with_parameters"),
        (lambda _config, *, _more: None, "missing a required argument: '_more'"),
        (asynchronous, "async"),
    ],
)
def test_what_cannot_be_called_with_a_config_is_refused(fn: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        function_entry(fn)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="trainable=7: pass a function of one argument"):
        function_entry(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "checkpoint", [CheckpointConfig(checkpoint_frequency=2), CheckpointConfig(checkpoint_at_end=True)]
)
def test_a_function_saves_by_itself(checkpoint: CheckpointConfig) -> None:
    with pytest.raises(ValueError, match="a function saves when it calls report"):
        entry_of(lambda _config: None, checkpoint)


def test_trainables_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.tune.registry._registered", {})
    register_trainable("mine", mine := (lambda _config: None))
    register_trainable("stub", Stub)
    assert (get_trainable("mine"), get_trainable("stub")) == (mine, Stub)
    with pytest.raises(ValueError, match=r"unknown trainable 'yours' \(registered: 'mine', 'stub'\)"):
        get_trainable("yours")


@pytest.mark.parametrize(
    ("name", "trainable"), [("", lambda _config: None), (1, lambda _config: None), ("x", dict), ("x", 1)]
)
def test_what_is_no_trainable_cannot_be_registered(name: Any, trainable: Any) -> None:
    with pytest.raises(TypeError, match=r"register_trainable|subclass|pass a function"):
        register_trainable(name, trainable)
