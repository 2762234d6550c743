"""Curves in bounded memory: few reports exactly, many by their extremes, and what is appended without a reread."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.core.run.events import AttemptStarted
from holdfast.runs.stored_experiment import open_stored
from holdfast.runs.stored_run import StoredRun
from holdfast.store import metrics
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.web import curve_index
from holdfast.web.bucketed_curve import BUCKET_BYTES, BUCKETS, METRICS, BucketedCurve
from holdfast.web.curve_index import ALL_BUCKETS, ATTEMPTS, LEAST_BUCKETS, CurveIndex
from holdfast.web.recent import Recent
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


def test_many_curves_share_a_bounded_number_of_buckets(tmp_path: Path) -> None:
    """As many attempts and metrics as are shown: the first of them lose detail when the later ones come."""
    lines = [metrics.line(index, 1.0, {f"m{n}": float(index) for n in range(METRICS + 9)}) for index in range(100)]
    (tmp_path / "run").mkdir()
    writer = metrics.MetricsWriter(RunLayout(tmp_path / "run"))
    starts = [AttemptStarted(number, 1, None, 0) for number in range(1, ATTEMPTS + 3)]
    for started in starts:
        writer.append(started.attempt_number, 0, b"".join(lines))
    writer.close()
    index = CurveIndex(StoredRun(Location.parse("x", tmp_path / "run")))
    assert index.advance(starts, 120.0) == 1
    found = index.attempts()
    assert len(found) == ATTEMPTS
    assert {len(attempt.curves) for attempt in found.values()} == {METRICS}
    most = max(ALL_BUCKETS, 2 * LEAST_BUCKETS * ATTEMPTS * METRICS)
    assert index.size <= most * BUCKET_BYTES < 8 << 20
    for attempt in (found[3], found[ATTEMPTS + 2]):
        points = attempt.curves["m0"].points()
        assert (points[0], points[-1]) == ((1, 0.0), (100, 99.0))
        assert points == sorted(points)


def test_a_run_that_was_deleted_and_begun_again_is_another_one(tmp_path: Path) -> None:
    """The new one may have as many bytes of reports: nothing but its id tells them apart."""
    known: Recent[CurveIndex] = Recent(2)

    def last_loss() -> float:
        stored = open_stored(Location.parse("x", tmp_path / "run"), once=True)
        index = known.use("0/run", stored.run_id(), lambda: CurveIndex(stored))
        index.advance(stored.read().past.attempts, 5.0, stored)
        return index.attempts()[1].curves["loss"].points()[-1][1]

    write_run(tmp_path / "run", 10, attempts=1)
    path = tmp_path / "run" / "metrics" / "attempt-0001" / "rank-0.jsonl"
    first, size = last_loss(), path.stat().st_size
    shutil.rmtree(tmp_path / "run")
    write_run(tmp_path / "run", 10, attempts=1)
    lines = [metrics.line(index, 1.0, {"loss": 0.5}) for index in range(10)]
    path.write_bytes((b"".join(lines) + b" " * size)[: size - 1] + b"\n")
    assert path.stat().st_size == size
    assert last_loss() == 0.5 != first
