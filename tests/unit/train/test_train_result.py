from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import NotARunError
from holdfast.store.location import Location
from holdfast.train import Checkpoint, Result, WorkerGroupError

NAN = float("nan")


def with_metrics(*metrics: dict[str, Any]) -> Result:
    return Result(path="/run", best_checkpoints=[(Checkpoint(f"/run/{i}"), m) for i, m in enumerate(metrics)])


def best(result: Result, metric: str, mode: str) -> str:
    checkpoint = result.get_best_checkpoint(metric, mode)
    assert checkpoint is not None
    return Path(checkpoint.path).name


def test_best_checkpoint() -> None:
    result = with_metrics({"loss": 2, "eval": {"acc": 0.1}}, {"loss": 1.0}, {"loss": 3, "eval": {"acc": 0.3}})
    assert best(result, "loss", "min") == "1"
    assert best(result, "loss", "max") == "2"
    assert best(result, "eval/acc", "max") == "2"
    assert best(with_metrics({"a/b": 1}, {"a/b": 2}), "a/b", "max") == "1"


@pytest.mark.parametrize("mode", ["max", "min"])
def test_nan_and_what_is_no_number_never_win(mode: str) -> None:
    result = with_metrics({"loss": NAN}, {"loss": 1.0}, {"loss": NAN}, {"loss": "low"}, {"loss": None}, {})
    assert best(result, "loss", mode) == "1"


def test_best_checkpoint_refuses_what_it_cannot_find() -> None:
    result = with_metrics({"loss": NAN, "eval": {"acc": 1}})
    with pytest.raises(RuntimeError, match=r"'los'.*eval/acc, loss"):
        result.get_best_checkpoint("los", "min")
    with pytest.raises(RuntimeError, match="No checkpoint has a number"):
        result.get_best_checkpoint("loss", "min")
    with pytest.raises(ValueError, match='use "max" or "min"'):
        result.get_best_checkpoint("loss", "lowest")
    with pytest.raises(RuntimeError, match="has no checkpoint"):
        Result(path="/run").get_best_checkpoint("loss", "min")


def test_dataframe_has_a_row_for_each_report() -> None:
    pytest.importorskip("pandas")
    rows = [{"loss": 1.0, "eval": {"acc": 0.5}}, {"loss": 0.5}]
    frame = Result(rows=rows).metrics_dataframe
    assert list(frame["loss"]) == [1.0, 0.5]
    assert frame["eval/acc"][0] == 0.5
    assert Result().metrics_dataframe is None


def test_dataframe_without_pandas_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast\[dataframe\]'"):
        _ = Result(rows=[{"a": 1}]).metrics_dataframe


def test_from_history(tmp_path: Path) -> None:
    location = Location.parse("path", tmp_path)
    stored: Any = SimpleNamespace(
        run=SimpleNamespace(location=location),
        metrics={"loss": 1},
        rows=[{"loss": 2}, {"loss": 1}],
        checkpoints=[("a", location / "a", {"loss": 2}), ("b", location / "b", {"loss": 1})],
        newest=location / "b",
        config={"lr": 0.1},
        error=None,
        ledger="ledger",
    )
    failed = WorkerGroupError("rank 1 was killed\nmore lines", {})
    result = Result.from_history(location, stored, error=failed, return_value=7)
    assert result.metrics == {"loss": 1}
    assert result.checkpoint == Checkpoint(tmp_path / "b")
    assert result.best_checkpoints == [
        (Checkpoint(tmp_path / "a"), {"loss": 2}),
        (Checkpoint(tmp_path / "b"), {"loss": 1}),
    ]
    assert (result.path, result.config, result.return_value, result.ledger) == (str(tmp_path), {"lr": 0.1}, 7, "ledger")
    assert result.error is failed
    assert "WorkerGroupError('rank 1 was killed')" in repr(result)
    again = pickle.loads(pickle.dumps(result))
    assert (again.metrics, again.checkpoint, str(again.error)) == (result.metrics, result.checkpoint, str(failed))


def test_a_run_without_reports(tmp_path: Path) -> None:
    run = SimpleNamespace(location=Location.parse("path", tmp_path))
    nothing = dict.fromkeys(("metrics", "newest", "config", "error", "ledger"))
    empty: Any = SimpleNamespace(run=run, rows=[], checkpoints=[], **nothing)
    result = Result.from_history(run.location, empty)
    assert (result.metrics, result.checkpoint, result.best_checkpoints, result.error) == (None, None, [], None)
    assert "error" not in repr(result)


def test_a_path_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NotARunError):
        Result.from_path(tmp_path)
    with pytest.raises(NotARunError):
        Result.from_path(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"Result\.from_path\(path='ftp://host/run'\)"):
        Result.from_path("ftp://host/run")
