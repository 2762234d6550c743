"""The display of an experiment in a notebook: how many trials have ended, and the best so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.tune.experiment.trials_picture import TrialsPicture, best_text, trials_text
from holdfast.ui.display_picture import DisplayNotice, OutputLine, Picture
from holdfast.ui.notebook_painter import NotebookPainter


class TrialsNotebookPainter(NotebookPainter):
    def __init__(self, output: Callable[[str], None]) -> None:
        super().__init__(output, self._share, self._trials)
        self._now = TrialsPicture()

    def paint(self, picture: Picture, news: list[OutputLine | DisplayNotice], now: float, final: bool) -> None:
        assert isinstance(picture, TrialsPicture)
        self._now = picture
        super().paint(picture, news, now, final)

    def _share(self, metrics: Mapping[str, Any], reports: int) -> tuple[float | None, str]:
        total = self._now.total
        known = total is not None and math.isfinite(total) and total > 0
        whole = max(float(total), self._now.trials) if known and total is not None else float(self._now.trials)
        return (self._now.ended / whole if whole else 0.0), f"{self._now.ended:,} of {whole:,.0f} trials"

    @staticmethod
    def _trials(picture: TrialsPicture) -> list[tuple[str, str]]:
        best = best_text(picture)
        return [("trials", trials_text(picture)), *([("best", best)] if best else [])]
