"""The fields that results have in addition to reported metrics, and the message for a missing metric."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from holdfast.core.metric_names import AUTO_KEYS as AUTO_KEYS
from holdfast.core.metric_names import TRAINING_ITERATION as TRAINING_ITERATION
from holdfast.core.metric_names import flat_items

DEFAULT_METRIC = "_metric"  # the name of an unnamed metric


def reported_text(result: Mapping[str, Any], metric: str) -> str:
    """Text with the metrics that a result has instead of the missing one, and the one that was probably meant."""
    known = sorted(name for name, _ in flat_items({k: v for k, v in result.items() if k not in AUTO_KEYS}))
    meant = difflib.get_close_matches(metric, [*known, *sorted(AUTO_KEYS)], n=1)
    guess = f". Did you mean {meant[0]!r}?" if meant else ""
    return f"it has {', '.join(known) or 'nothing'}{guess}"
