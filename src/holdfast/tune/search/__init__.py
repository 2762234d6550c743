"""Searchers: what proposes the configs of trials. ``OptunaSearch`` is in ``holdfast.tune.search.optuna``."""

from __future__ import annotations

from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.concurrency_limiter import ConcurrencyLimiter
from holdfast.tune.search.repeater import Repeater
from holdfast.tune.search.searcher import Searcher

__all__ = ["BasicVariantGenerator", "ConcurrencyLimiter", "Repeater", "Searcher"]
