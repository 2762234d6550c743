"""Curves in bounded memory: few reports exactly, many by their extremes, and what is appended without a reread."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runs.stored_experiment import open_stored
from holdfast.store import metrics
from holdfast.store.location import Location
from holdfast.web import curve_index
from holdfast.web.curve_index import BUCKETS, BucketedCurve, CurveIndex
from support.web.large_runs import write_run


def test_few_values_are_all_there() -> None:
    curve = BucketedCurve()
    for x in range(100):
        curve.add(x, x * 0.5)
    assert curve.points() == [(x, x * 0.5) for x in range(100)]


@pytest.mark.parametrize("count", [BUCKETS * 2, 50_001])
def test_many_values_keep_their_extremes_in_order(count: int) -> None:
    curve = BucketedCurve()
    spikes = {count // 7: 1e9, count // 3: -1e9}
    for x in range(count):
        curve.add(x, spikes.get(x, x % 10))
    points = curve.points()
    assert len(points) <= 4 * BUCKETS + 1
    assert set(spikes.items()) <= set(points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)


def test_nan_and_infinities_are_counted_and_not_drawn() -> None:
    curve = BucketedCurve()
    for y in (1.0, float("nan"), float("inf"), 2.0):
        curve.add(1, y)
    assert curve.odd == 2
    assert [y for _, y in curve.points()] == [1.0, 2.0]


def test_a_run_is_read_in_slices_with_a_sample_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_index, "_BIG", 1000)
    write_run(tmp_path / "run", 30_000)
    stored = open_stored(Location.parse("x", tmp_path / "run"))
    index, starts = CurveIndex(stored), stored.read().past.attempts
    share = index.advance(starts, 0.0)
    assert 0 < share < 1
    first = index.attempts()[1].curves["step"].points()
    assert first[0][1] == 1
    assert first[-1][1] == 10_000
    while share < 1:
        before, share = share, index.advance(starts, 0.0)
        assert share > before
    assert [attempt.reports for attempt in index.attempts().values()] == [10_000] * 3
    steps = [y for attempt in index.attempts().values() for _, y in attempt.curves["step"].points()]
    assert (steps[0], steps[-1]) == (1, 30_000)


def test_what_is_appended_is_read_from_where_the_last_look_ended(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 10, attempts=1)
    stored = open_stored(Location.parse("x", tmp_path / "run"))
    index, starts = CurveIndex(stored), stored.read().past.attempts
    assert index.advance(starts, 1.0) == 1
    path = tmp_path / "run" / "metrics" / "attempt-0001" / "rank-0.jsonl"
    line = metrics.line(10, 5.0, {"loss": 7.0})
    for part in (line[:20], line[20:]):
        with path.open("ab") as file:
            file.write(part)
        assert index.advance(starts, 1.0) == 1
    assert index.attempts()[1].reports == 11
    assert index.attempts()[1].curves["loss"].points()[-1] == (11, 7.0)
