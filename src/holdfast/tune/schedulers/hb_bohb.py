"""HyperBand for BOHB: the largest bracket first, so that a model-based searcher learns from many short trials early."""

from __future__ import annotations

from .halving import HalvingBracket
from .hyperband import HyperBandScheduler


class HyperBandForBOHB(HyperBandScheduler):
    def _bracket_at(self, place: int) -> int:
        return self._s_max - place

    def _in_order(self) -> list[HalvingBracket]:
        return self._brackets
