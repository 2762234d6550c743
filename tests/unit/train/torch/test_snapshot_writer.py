"""At most one completed step is lost: an update waits until the snapshot of the step before it is complete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from holdfast.train import checks
from holdfast.train.torch import state_parts, state_shards
from holdfast.train.torch.state_snapshots import SnapshotWriter, _Piece
from holdfast.wire.worker_messages import Memory, SnapshotKept, TookSnapshot

WAIT_S = 60.0


class Session:
    """What the writer asks of it. Another thread says what is complete."""

    rank = local_rank = 0
    world_size = attempt_number = 1
    reports_are_told = True
    regrouped_at = -1
    node_id = "n1"

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.told: list[int] = []
        self.written: list[list[str]] = []
        self.ended: list[str] = []  # why
        self.snapshot_kept, self._ends = SnapshotKept(1, -1), list[Callable[[], None]]()
        self.changed = threading.Condition()

    def tell_snapshot(self, taken: TookSnapshot) -> None:
        self.told.append(taken.step)
        self.written.append(sorted(taken.pieces.values()))
        self.ended += [taken.why_ended] if taken.why_ended else []

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

    def step(self, every: int = 1, share: float | None = None) -> None:
        self.optimizer.step()
        self.steps += 1
        if self.writer.count_step(self.steps, every, share):
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


@pytest.fixture
def agreed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps after which a rank took part when the ranks agreed on a pace: it becomes each second step."""
    found: list[int] = []

    def all_reduce(every: torch.Tensor, _op: object) -> None:
        found.append(1)
        every.fill_(2)

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "gloo")
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    return found


def parts_taken(training: Training, agreed: list[int], steps: int) -> list[int]:
    """How often the rank had taken part after each step."""
    training.session.world_size, found = 2, list[int]()
    for _ in range(steps):
        training.session.snapshot_kept = SnapshotKept(1, training.steps)
        training.step(share=0.5)
        found.append(len(agreed))
    return found


ALL_RANKS = [1, 2, 2, 2, 2, 3]  # after steps 1, 2 and 6, the fourth that was due


def test_a_rank_agrees_on_the_pace(training: Training, agreed: list[int]) -> None:
    assert parts_taken(training, agreed, 6) == ALL_RANKS


def test_a_rank_that_skips_a_snapshot_agrees_on_the_pace_with_the_others(training: Training, agreed: list[int]) -> None:
    """Else what it does next meets what they do, such as a reduction of gradients."""
    training.session.reports_are_told = False
    assert parts_taken(training, agreed, 6) == ALL_RANKS


@pytest.mark.usefixtures("_nothing_said")
def test_a_rank_that_takes_no_more_agrees_on_the_pace_with_the_others(training: Training, agreed: list[int]) -> None:
    with pytest.warns(UserWarning, match="no space left"):
        training.writer._stop("no space left")
    assert parts_taken(training, agreed, 6) == ALL_RANKS


def test_a_rank_without_memory_agrees_on_the_pace_with_the_others(training: Training, agreed: list[int]) -> None:
    training.writer = SnapshotWriter(training.session, None)  # type: ignore[arg-type]
    assert parts_taken(training, agreed, 6) == ALL_RANKS


def test_ranks_learn_the_pace_anew_with_one_that_was_replaced(training: Training, agreed: list[int]) -> None:
    parts_taken(training, agreed, 6)
    agreed.clear()
    training.session.regrouped_at = training.steps + 1
    training.writer.replaced(None)
    assert parts_taken(training, agreed, 8) == [0, 1, 1, 2, 2, 2, 2, 3], "none is due after the step of the replacement"


@pytest.fixture
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process says it once."""
    monkeypatch.setattr(checks, "_warned", set())


@pytest.mark.usefixtures("_nothing_said")
def test_a_rank_that_cannot_write_tells_the_others_why(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_Piece, "write", full)
    with pytest.warns(UserWarning, match="no more snapshots are taken in memory: .*No space left on device"):
        training.step()
    training.step()
    assert (training.session.told, training.session.ended) == ([1], ["[Errno 28] No space left on device"])


@pytest.mark.usefixtures("_nothing_said")
def test_a_rank_that_hears_why_another_takes_none_stops_at_once(training: Training) -> None:
    training.step()
    training.session.snapshot_kept = SnapshotKept(1, 1, True, None, "rank 1: No space left on device")
    with pytest.warns(UserWarning, match="rank 1: No space left on device"):
        training.step()
    training.step()
    assert (training.session.told, training.session.ended) == ([1], [])


def test_a_rank_without_memory_tells_the_others(training: Training) -> None:
    training.writer = SnapshotWriter(training.session, None)  # type: ignore[arg-type]
    training.step()
    training.step()
    assert (training.session.told, training.session.ended) == ([1], ["n1 has no memory for them"])


def test_states_are_compared_only_where_another_number_of_ranks_can_take_over(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_shards, "can_be_cut", lambda _parts: False)
    monkeypatch.setattr(state_parts, "digest_of", lambda _tree: pytest.fail("its result is not used"))
    training.steps, part = 1, torch.utils.data.SequentialSampler([1])
    rng = {"python": [3, [1], None], "numpy": ["MT19937", [1], 0, 0, 0.0]}
    training.writer.take({"steps": 1, "values": {}, "parts": {"sampler": {"at": 1}}, "rng": rng}, {"sampler": part})
    assert training.session.told == [1]
