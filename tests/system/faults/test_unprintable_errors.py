"""An exception may raise when it is printed, or say too much: its rank and its class are named all the same."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast import tune
from holdfast.driver.accounts import Accounts
from holdfast.errors import message_of

HUGE = 30 << 20


class RaisesError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class ExitsError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NoTextError(Exception):
    def __str__(self) -> Any:
        return 42


class HugeError(Exception):
    def __str__(self) -> str:
        return "x" * HUGE


class LockError(Exception):
    """Cannot be sent either."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("no")


ERRORS = [RaisesError, ExitsError, NoTextError, HugeError, LockError]


def fail(config: dict[str, Any]) -> None:
    train.collective.barrier()
    raise config["error"]


def trainer(storage: Path, error: type[Exception], workers: int) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        fail,
        train_loop_config={"error": error},
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(name="run", storage_path=str(storage), verbose=0),
    )


@pytest.mark.parametrize("error", ERRORS)
def test_the_failure_of_two_ranks_names_them_and_the_exception(tmp_path: Path, error: type[Exception]) -> None:
    with pytest.raises(train.WorkerGroupError) as caught:
        trainer(tmp_path, error, workers=2).fit()
    text = str(caught.value)
    assert error.__name__ in text
    ranks = set(caught.value.worker_failures)  # both, or the one that was faster
    assert ranks
    assert ranks <= {0, 1}
    assert all(f"rank {rank}" in text for rank in ranks)
    assert 'raise config["error"]' in text, "the traceback is missing"
    assert len(text) < 1 << 20
    pickle.loads(pickle.dumps(caught.value))
    stored = train.Result.from_path(str(tmp_path / "run"))
    assert error.__name__ in str(stored.error)


class Callback(train.UserCallback):
    def after_exception(self, run_context: Any, worker_exceptions: Any) -> None:
        raise RaisesError


def test_a_callback_that_raises_it_is_named(tmp_path: Path) -> None:
    own = trainer(tmp_path, ValueError, workers=1)
    own.run_config.callbacks = [Callback()]
    with pytest.raises(train.ControllerError, match=r"Callback\.after_exception raised RaisesError"):
        own.fit()


@pytest.mark.parametrize("error", [RaisesError, HugeError])
def test_a_trial_that_fails_with_it_is_named_and_the_others_go_on(tmp_path: Path, error: type[Exception]) -> None:
    def sometimes(config: dict[str, Any]) -> None:
        if config["fails"]:
            raise error
        tune.report({"value": 1})

    run_config = tune.RunConfig(name="experiment", storage_path=str(tmp_path), verbose=0)
    space = {"fails": tune.grid_search([True, False])}
    grid = tune.Tuner(sometimes, param_space=space, run_config=run_config).fit()
    assert grid.num_errors == 1
    assert error.__name__ in str(grid.errors[0])
    assert len(str(grid.errors[0])) < 1 << 20


def test_a_message_is_always_text() -> None:
    assert message_of(ValueError("plain")) == "plain"
    assert message_of(ValueError("\udcff")) == r"\udcff"
    for error in ERRORS[:3]:
        assert message_of(error()) == "(its message cannot be shown)"
        accounts = Accounts(lambda attempt, rank: f"logs/{attempt}/{rank}")
        accounts._seen = {0: (ValueError(), ""), 1: (error(), "")}
        said = f"Then rank 1 failed too ({error.__name__}: (its message cannot be shown)). Its output: logs/0"
        assert accounts._of_others(0) == said
    assert len(message_of(HugeError())) < 50_000
