"""Retention: what must stay stays, and nothing else does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.run.retention import superseded
from holdfast.core.run.state import CheckpointRecord, RunSpec, ValidationStatus

SCORES = st.none() | st.sampled_from([0.0, 1.0, 2.0, math.nan, math.inf, -math.inf]) | st.floats()


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[CheckpointRecord], RunSpec, set[str]]:
    reports = draw(st.lists(st.integers(1, 50), unique=True, max_size=8))
    records = [CheckpointRecord(f"c{r}", r, draw(SCORES), draw(st.sampled_from(ValidationStatus))) for r in reports]
    keep = draw(st.none() | st.integers(1, 4))
    spec = RunSpec(num_to_keep=keep, scored=draw(st.booleans()), score_order=draw(st.sampled_from(["max", "min"])))
    pinned = draw(st.sets(st.sampled_from([c.id for c in records]), max_size=1)) if records else set()
    return records, spec, pinned


def numbers(*scores: float | None) -> list[CheckpointRecord]:
    return [CheckpointRecord(f"c{i}", i, score) for i, score in enumerate(scores, 1)]


@settings(deadline=None)
@given(situations())
def test_the_newest_the_pinned_and_those_under_validation_stay(situation: tuple) -> None:
    records, spec, pinned = situation
    gone = set(superseded(records, spec, pinned))
    assert not gone & pinned
    assert not gone & {c.id for c in records if c.validation is ValidationStatus.PENDING}
    if records:
        assert max(records, key=lambda c: c.report).id not in gone


@settings(deadline=None)
@given(situations())
def test_no_more_stay_than_must(situation: tuple) -> None:
    records, spec, pinned = situation
    gone = superseded(records, spec, pinned)
    assert len(set(gone)) == len(gone)
    if spec.num_to_keep is None:
        assert gone == []
        return
    pending = sum(c.validation is ValidationStatus.PENDING for c in records)
    left = len(records) - len(gone)
    assert left >= min(len(records), spec.num_to_keep)
    assert left <= spec.num_to_keep + 1 + len(pinned) + pending


@settings(deadline=None)
@given(situations())
def test_what_goes_is_no_better_than_what_stays(situation: tuple) -> None:
    records, spec, pinned = situation
    gone = set(superseded(records, spec, pinned))
    newest = max((c.report for c in records), default=0)
    sign = 1.0 if spec.score_order == "max" else -1.0
    kept_for_worth = [
        c
        for c in records
        if c.id not in gone | pinned and c.report != newest and c.validation is not ValidationStatus.PENDING
    ]
    for kept in kept_for_worth:
        for lost in (c for c in records if c.id in gone):
            if not spec.scored:
                assert lost.report < kept.report
            elif kept.score is not None and not math.isnan(kept.score):
                if lost.score is not None and not math.isnan(lost.score):
                    assert sign * lost.score <= sign * kept.score
            else:
                assert lost.score is None or math.isnan(lost.score)


@settings(deadline=None)
@given(situations())
def test_retiring_twice_retires_nothing_more(situation: tuple) -> None:
    records, spec, pinned = situation
    gone = set(superseded(records, spec, pinned))
    assert superseded([c for c in records if c.id not in gone], spec, pinned) == []


def test_without_a_score_the_latest_stay_and_the_oldest_goes_first() -> None:
    assert superseded(numbers(9.0, 8.0, 7.0, 6.0), RunSpec(num_to_keep=2), ()) == ["c1", "c2"]


@pytest.mark.parametrize(("order", "gone"), [("max", ["c1", "c3"]), ("min", ["c2"])])
def test_by_score_the_best_and_the_newest_stay(order: str, gone: list[str]) -> None:
    spec = RunSpec(num_to_keep=2, scored=True, score_order=order)
    assert superseded(numbers(0.1, 0.9, 0.2, 0.3), spec, ()) == gone


def test_not_a_number_is_worst_in_either_order() -> None:
    for order in ("max", "min"):
        spec = RunSpec(num_to_keep=1, scored=True, score_order=order)
        assert superseded(numbers(math.nan, 5.0, None, math.nan), spec, ()) == ["c1", "c3"]


def test_of_equals_the_later_stays() -> None:
    assert superseded(numbers(1.0, 1.0, 0.0), RunSpec(num_to_keep=1, scored=True), ()) == ["c1"]
