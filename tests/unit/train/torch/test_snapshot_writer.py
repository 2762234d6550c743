"""At most one completed step is lost: an update waits until the snapshot of the step before it is complete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from holdfast.train.torch.state_snapshots import SnapshotWriter
from holdfast.wire.worker_messages import Memory, SnapshotKept, TookSnapshot

WAIT_S = 60.0


class Session:
    """What the writer asks of it. Another thread says what is complete."""

    rank = local_rank = 0
    world_size = attempt_number = 1
    reports_are_told = True

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.told: list[int] = []
        self.written: list[list[str]] = []
        self.snapshot_kept, self._ends = SnapshotKept(1, -1), list[Callable[[], None]]()
        self.changed = threading.Condition()

    def tell_snapshot(self, taken: TookSnapshot) -> None:
        self.told.append(taken.step)
        self.written.append(sorted(taken.pieces.values()))

    def await_kept(self, step: int, timeout_s: float) -> bool:
        with self.changed:
            self.asked.append(step)
            self.changed.notify_all()
            return self.changed.wait_for(lambda: self.snapshot_kept.step >= step, WAIT_S if timeout_s else 0)

    def keep(self, step: int) -> None:
        """When the writer waits for it."""
        with self.changed:
            assert self.changed.wait_for(lambda: step in self.asked, WAIT_S), f"nobody waited for {step}"
            self.snapshot_kept = SnapshotKept(1, step)
            self.changed.notify_all()

    def at_end(self, call: Callable[[], None]) -> None:
        self._ends.append(call)

    def end(self) -> None:
        for call in self._ends:
            call()


class Training:
    def __init__(self, directory: Path) -> None:
        self.session, self.steps = Session(), 0
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.weight.grad = torch.ones(1)
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)
        self.writer = SnapshotWriter(self.session, Memory(str(directory)))  # type: ignore[arg-type]

    @property
    def updates(self) -> int:
        return -int(self.weight.item())

    def step(self, every: int = 1) -> None:
        self.optimizer.step()
        self.steps += 1
        if self.writer.count_step(self.steps, every, None):
            rng = {"python": [3, [1], None], "numpy": ["MT19937", [1], 0, 0, 0.0]}
            self.writer.take({"steps": self.steps, "values": {}, "parts": {}, "rng": rng}, {})


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    made = Training(tmp_path)
    yield made
    made.session.end()
    for piece in made.writer._pieces.values():
        piece._buffers.close()


def test_an_update_waits_for_the_snapshot_before_it(training: Training) -> None:
    training.step()
    seen: list[int] = []

    def keep() -> None:
        for step in (1, 2):
            with training.session.changed:
                training.session.changed.wait_for(lambda step=step: step in training.session.asked, WAIT_S)
                seen.append(training.updates)
            training.session.keep(step)

    keeper = threading.Thread(target=keep)
    keeper.start()
    training.step()
    training.step()
    keeper.join(WAIT_S)
    assert seen == [1, 2], "of a step that is not complete no more than one update was made"
    assert training.session.told == [1, 2, 3]


def test_nothing_waits_where_snapshots_are_less_frequent(training: Training) -> None:
    for _ in range(5):
        training.step(every=3)
    assert training.session.told == [3]
    assert training.session.asked == []


def test_a_writer_whose_run_has_ended_holds_nobody_up(training: Training) -> None:
    training.step()
    training.session.end()
    training.optimizer.step()
    assert training.session.asked == []


def test_a_rank_that_skips_a_snapshot_says_so(training: Training) -> None:
    """Else the others would wait for it in vain."""
    training.session.reports_are_told = False
    training.step()
    training.step()
    assert training.session.told == [1, 2]
    assert training.session.written == [[], []]
    assert training.session.asked == []


def test_what_another_rank_skips_is_not_waited_for_and_the_complete_one_stays(training: Training) -> None:
    session = training.session
    skipped = SnapshotKept(1, 2, True, (1, 1))
    for kept in (SnapshotKept(1, 0), SnapshotKept(1, 1), skipped, SnapshotKept(1, 3)):
        session.snapshot_kept = kept
        training.step()
    first, second, third, fourth = session.written
    assert first != second == third, "the first, which is complete, stays"
    assert fourth == first
