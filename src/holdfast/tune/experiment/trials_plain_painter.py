"""The display of an experiment without a terminal: few lines, fewer as it takes longer, and a table at the end."""

from __future__ import annotations

from holdfast.tune.experiment.trials_picture import TrialsPicture, best_text, elapsed_text, speed_text, trials_text
from holdfast.ui.display_picture import DisplayNotice, OutputLine, Picture, Rate, rate_text
from holdfast.ui.display_streams import Sink
from holdfast.ui.plain_painter import PlainPainter

_LEAST_S, _MOST_S = 10.0, 300.0  # between two lines about progress
_SHARE = 0.05  # of the time so far


class TrialsPlainPainter(PlainPainter):
    """The output of trials and the table are written to ``out``, events of the experiment to ``err``."""

    def __init__(self, out: Sink, err: Sink) -> None:
        super().__init__(out, err)
        self._ended_rate = Rate(60.0)
        self._next = float("-inf")
        self._said = ""

    def paint(self, picture: Picture, news: list[OutputLine | DisplayNotice], now: float, final: bool) -> None:
        assert isinstance(picture, TrialsPicture)
        if self._next == float("-inf"):
            self._next = picture.started + _LEAST_S
        super().paint(picture, news, now, final)
        if final and picture.closing:
            self._out.write(f"{picture.closing}\n")

    def _tell_progress(self, picture: Picture, rate: float | None, now: float) -> None:
        assert isinstance(picture, TrialsPicture)
        trials_rate = self._ended_rate.update(now, picture.ended)
        is_last = picture.state in ("finished", "failed", "stopped")
        if now < self._next and not is_last:
            return
        self._next = now + min(_MOST_S, max(_LEAST_S, _SHARE * (now - picture.started)))
        parts = [f"trials: {trials_text(picture)}"]
        parts += [speed_text(trials_rate, "trials")] if trials_rate is not None and not is_last else []
        parts += [f"{rate_text(rate)} results"] if rate is not None and not is_last else []
        parts += [f"{elapsed_text(picture, now)} spent"] if picture.budget_s is not None else []
        parts += [f"best {best_text(picture)}"] if best_text(picture) else []
        text = "; ".join(parts)
        if text != self._said:
            self._tell(picture, now, text)
            self._said = text
