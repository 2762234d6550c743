"""A metric has one name for retention, results, schedulers and commands alike."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.metric_names import lookup, metric_number
from holdfast.driver.committed_events import score_of

NESTED = {"val": {"acc/top1": 0.9, "loss": {"mean": 0.1}}, "a/b": {"c": 3}, "a": {"b/c": 4, "b": {"d": 5}}}


@pytest.mark.parametrize(
    ("name", "value"),
    [("val/acc/top1", 0.9), ("val/loss/mean", 0.1), ("a/b/c", 4), ("a/b/d", 5), ("a/b", {"c": 3}), ("val/none", None)],
)
def test_a_value_is_found_whatever_slashes_its_keys_have(name: str, value: Any) -> None:
    assert lookup(NESTED, name) == value


def test_retention_sees_the_score_that_the_best_checkpoint_is_chosen_by() -> None:
    """It looked for ``metrics["val"]["acc"]["top1"]``, and found nothing."""
    assert score_of(NESTED, "val/acc/top1") == 0.9
    assert metric_number(NESTED, "val/acc/top1") == 0.9
