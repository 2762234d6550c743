"""After which steps a snapshot in memory is due: by number, or by the part of the time that it may take."""

from __future__ import annotations

import time

import pytest

from holdfast.train.torch.state_snapshots import _Pace


class Watch:
    """Time passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def due(self, pace: _Pace, steps: int, step_s: float, cost_s: float, share: float) -> list[int]:
        """The steps after which a snapshot was due, and taken."""
        due = []
        for step in range(1, steps + 1):
            self.now += step_s
            if pace.count_step(step, 1, share):
                due.append(step)
                self.now += cost_s
                pace.took(1)
        return due


def test_every_so_manieth_step() -> None:
    pace = _Pace()
    assert [step for step in range(1, 13) if pace.count_step(step, 4, None)] == [4, 8, 12]


@pytest.mark.parametrize(
    ("share", "every"), [(0.1, 5), (0.5, 1), (0.02, 25)], ids=["a tenth", "half of it", "two per cent"]
)
def test_as_often_as_takes_at_most_a_part_of_the_time(
    share: float, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes 1 s, a snapshot 0.5 s: 0.5 s of every 5.5 s are less than a tenth, and of every 4.5 s more."""
    watch, pace = Watch(monkeypatch), _Pace()
    due = watch.due(pace, steps=200, step_s=1.0, cost_s=0.5, share=share)
    assert due[:2] == [1, next(step for step in range(2, 200) if step % every == 0)]
    assert all(step % every == 0 for step in due[1:])
    assert len(due) * 0.5 <= share * watch.now + 0.5


def test_the_share_is_learnt_again_when_snapshots_become_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the 1st, 2nd, 4th, 8th, … of them: the first two are slow, because they allocate the memory."""
    watch, pace = Watch(monkeypatch), _Pace()
    assert watch.due(pace, steps=1, step_s=1.0, cost_s=9.0, share=0.5) == [1]
    due = watch.due(pace, steps=40, step_s=1.0, cost_s=1.0, share=0.5)
    assert due[0] == 9
    assert due[1:] == list(range(10, 41))
