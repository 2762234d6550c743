"""``TrainState`` without processes: what it saves, reads back and refuses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from holdfast.train import Checkpoint
from holdfast.train.torch import TrainState, prepare_data_loader, rng_state, state_snapshots
from holdfast.train.torch.state_files import rank_file, read, write
from holdfast.wire.worker_messages import Memory
from holdfast.worker import session as sessions
from holdfast.worker.snapshot_buffers import PieceBuffers
from support.train.session_stand_in import SessionStandIn

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
DATA = TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32.0).reshape(32, 1))
Become = Callable[[int, int], None]


@pytest.fixture(autouse=True)
def become() -> Iterator[Become]:
    """``become(rank, world_size)``: this process is that worker from now on."""

    def worker(rank: int, world_size: int) -> None:
        sessions.install(SessionStandIn(rank, world_size))  # type: ignore[arg-type]

    worker(0, 1)
    yield worker
    sessions.install(None)


class Job:
    """A model that is trained, with all that its next step depends on."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [1, 3], 0.5)
        self.loader = prepare_data_loader(DataLoader(DATA, batch_size=4, shuffle=True))
        self.state = TrainState(
            model=self.model, optimizer=self.optimizer, schedule=self.schedule, loader=self.loader, epoch=0, best=0.0
        )

    def train(self, epochs: int, stop: tuple[int, int] | None = None) -> list[float]:
        """The losses from where the state is on, up to the end or to a batch of an epoch; batch 8 is an epoch's end."""
        losses = []
        for epoch in self.state.epochs(epochs):
            for number, (x, y) in enumerate(self.loader):
                noise = torch.randn_like(x) + random.random() + float(np.random.rand())
                loss = torch.nn.functional.mse_loss(self.model(x + noise), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
                self.state.steps += 1
                self.state.best = np.float64(losses[-1])
                if stop == (epoch, number):
                    return losses
            self.schedule.step()
            if stop == (epoch, 8):
                return losses
        return losses


@pytest.mark.parametrize("stop", [(0, 3), (1, 0), (1, 7), (1, 8), (2, 4), (3, 8)])
def test_a_resumed_state_trains_as_the_one_before(session: Any, stop: tuple[int, int]) -> None:
    reference = Job().train(4)
    job = Job()
    before = job.train(4, stop)
    job.state.report({"step": len(before)})
    resumed = Job(seed=1)
    assert not resumed.state.resume(), "nothing was offered yet"
    session.initial = Checkpoint(session.reports[-1]["directory"])
    assert resumed.state.resume()
    assert (resumed.state.steps, resumed.state.best) == (len(before), before[-1])
    assert before + resumed.train(4) == reference


def test_torch_alone_reads_the_files(session: Any) -> None:
    job = Job()
    job.train(2, (1, 3))
    job.state.report({})
    directory = Path(session.reports[-1]["directory"])
    saved = torch.load(directory / "state.pt", weights_only=True)
    assert saved["values"] == {"epoch": 1, "best": job.state.best}
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    model.load_state_dict(saved["parts"]["model"])
    assert torch.equal(model[0].weight, job.model[0].weight)
    assert torch.load(directory / rank_file(0), weights_only=True)["parts"]["loader"]["consumed"] == 16


def test_what_was_captured_can_be_applied_elsewhere() -> None:
    reference = Job().train(2)
    job = Job()
    before = job.train(2, (1, 3))
    captured = job.state.capture()
    other = Job(seed=1)
    other.state.apply(captured)
    with torch.no_grad():
        for state in job.optimizer.state.values():
            state["exp_avg"].zero_()
            job.model[0].weight.zero_()
    assert before + other.train(2) == reference, "the two states share no tensor"


def test_a_report_without_a_loader_ends_its_epoch(session: Any) -> None:
    seen = []
    for _ in range(3):
        state = TrainState(best=0)
        state.resume()
        for epoch in state.epochs(3):
            seen.append(epoch)
            state.report({})
            session.initial = Checkpoint(session.reports[-1]["directory"])
            break
    assert seen == [0, 1, 2]


def test_torchdata_says_when_its_epoch_has_ended() -> None:
    state = TrainState(loader=StatefulDataLoader(DATA, batch_size=16))
    saved = [state.capture()["values"]["epoch"] for _ in state.epochs(2) for _ in state.loader]
    assert saved == [0, 0, 1, 1]
    for _ in state.epochs(3):
        list(state.loader)
        assert state.capture()["values"]["epoch"] == 3


def test_attributes_are_the_components() -> None:
    job = Job()
    assert job.state.model is job.model
    with pytest.raises(AttributeError, match=r"TrainState\(worst=…\)"):
        job.state.worst = 1
    with pytest.raises(AttributeError, match=r"TrainState\(worst=…\)"):
        _ = job.state.worst
    for name in ("report", "steps", "_x"):
        with pytest.raises(ValueError, match="is taken"):
            TrainState(**{name: 1})


def test_what_torch_would_not_read_is_refused() -> None:
    with pytest.raises(TypeError, match=r"TrainState: best is a .*ndarray"):
        TrainState(best=np.zeros(3))
    part = SimpleNamespace(state_dict=lambda: {"a": [Path("x")]}, load_state_dict=lambda _: None)
    with pytest.raises(TypeError, match=r"TrainState: loader\.a\[0\] is a pathlib"):
        TrainState(loader=part).capture()


def test_other_names_are_refused(session: Any) -> None:
    TrainState(epoch=0, best=0).report({})
    session.initial = Checkpoint(session.reports[-1]["directory"])
    with pytest.raises(ValueError, match="has no 'least'"):
        TrainState(epoch=0, best=0, least=0).resume()
    with pytest.raises(ValueError, match="'best', which"):
        TrainState().resume()


def test_another_checkpoint_is_refused(session: Any, tmp_path: Path) -> None:
    session.initial = Checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"has no state\.pt"):
        TrainState().resume()


def save_all(become: Become, directory: Path, world_size: int, make: Callable[[int], TrainState]) -> None:
    for rank in range(world_size):
        become(rank, world_size)
        torch.manual_seed(rank)
        state = make(rank)
        write(directory, state.capture(), state._parts, rank, world_size)


def test_each_rank_has_its_own_random_numbers(become: Become, tmp_path: Path) -> None:
    save_all(become, tmp_path, 2, lambda rank: TrainState(epoch=rank))
    draws = []
    for rank in (0, 1, 2, 2):
        become(rank, 3)
        state = TrainState(epoch=0)
        state._load(tmp_path, rank, 3)
        assert state.epoch == 0, "plain values are rank 0's"
        draws.append(torch.rand(1).item())
    for rank in (0, 1):
        torch.manual_seed(rank)
        assert draws[rank] == torch.rand(1).item()
    assert len(set(draws)) == 3
    assert draws[2] == draws[3], "a new rank draws the same at each resume"


def test_states_of_ranks_go_to_as_many_ranks(become: Become, tmp_path: Path) -> None:
    def stateful(rank: int) -> TrainState:
        loader = StatefulDataLoader(DATA, batch_size=4)
        for number, _ in enumerate(loader):
            if number == rank:
                break
        return TrainState(loader=loader)

    save_all(become, tmp_path, 2, stateful)
    for rank in (0, 1):
        become(rank, 2)
        state = TrainState(loader=StatefulDataLoader(DATA, batch_size=4))
        state._load(tmp_path, rank, 2)
        assert len(list(state.loader)) == 8 - 1 - rank
    become(0, 3)
    with pytest.raises(ValueError, match="'loader' was saved by 2 workers"):
        read(tmp_path, {}, 0, 3)


def test_an_elastic_loader_goes_to_any_number_of_ranks(become: Become, tmp_path: Path) -> None:
    def elastic(_rank: int) -> TrainState:
        loader = prepare_data_loader(DataLoader(DATA, batch_size=4, shuffle=True))
        next(iter(loader))
        return TrainState(loader=loader)

    save_all(become, tmp_path, 2, elastic)
    for rank in range(3):
        become(rank, 3)
        state = TrainState(loader=prepare_data_loader(DataLoader(DATA, batch_size=4, shuffle=True)))
        state._load(tmp_path, rank, 3)
        assert (state.loader.consumed, state.loader.global_batch_size) == (8, 8)


def test_the_shard_of_a_dataset_says_how_far_an_epoch_has_come() -> None:
    """A state captured in the middle of an epoch continues there, and one behind the last batch with the next epoch."""
    data = pytest.importorskip("holdfast.data")
    for taken in (1, 3, 5):
        shard = data.range(10).random_shuffle(seed=3).iterator()
        state = TrainState(shard=shard)
        seen: list[list[int]] = [[], []]
        captured: dict[str, Any] = {}
        for epoch in state.epochs(2):
            for number, batch in enumerate(shard.iter_batches(batch_size=2), 1):
                seen[epoch] += batch["id"].tolist()
                if number == taken:
                    captured = state.capture()
                    break
            if captured:
                break
        assert captured["values"]["epoch"] == 0
        again = data.range(10).random_shuffle(seed=3).iterator()
        resumed = TrainState(shard=again)
        resumed.apply(captured)
        for epoch in resumed.epochs(2):
            for batch in again.iter_batches(batch_size=2):
                seen[epoch] += batch["id"].tolist()
            assert resumed.capture()["values"]["epoch"] == epoch + 1
        assert [sorted(rows) for rows in seen] == [list(range(10))] * 2, taken


def test_random_numbers_are_the_same_behind_a_snapshot() -> None:
    random.gauss(0, 1)
    np.random.randn()
    before = rng_state()
    pieces = state_snapshots.split({"steps": 1, "values": {}, "parts": {}, "rng": before}, {}, 0, 0)
    assert str(state_snapshots._unpacked(pieces["rank-0"]["rng"])) == str(before)


def test_what_each_rank_has_of_its_own_is_the_same_or_not() -> None:
    """Then another number of ranks can resume from memory, too. A loader of prepare_data_loader is always the same."""

    def own(batches: int) -> bytes:
        loader = StatefulDataLoader(DATA, batch_size=4)
        iterator = iter(loader)
        for _ in range(batches):
            next(iterator)
        parts = {"loader": loader, "elastic": prepare_data_loader(DataLoader(DATA, batch_size=4))}
        return state_snapshots.alike(parts, {name: part.state_dict() for name, part in parts.items()})

    assert own(2) == own(2) != own(3)
    parts = Job().state._parts
    assert state_snapshots.alike(parts, Job().state.capture()["parts"]) == b""


def test_another_number_of_ranks_reads_a_snapshot(tmp_path: Path, become: Become) -> None:
    """The ranks that there were get their own random numbers, the new one others, and all of them the rest."""
    pieces: dict[str, str] = {}
    captured = {}
    for rank in range(2):
        become(rank, 2)
        torch.manual_seed(rank)
        captured = {"steps": 7, "values": {"epoch": 1}, "parts": {}, "rng": rng_state()}
        for piece, tree in state_snapshots.split(captured, {}, rank, rank).items():
            writer = state_snapshots._Piece(PieceBuffers(tmp_path, piece))
            pieces[piece] = writer.write(tree, 1, 7, None)
            writer._buffers.close()
    memory = Memory(str(tmp_path), 7, 2, pieces)
    found = [state_snapshots.read(memory, {}, rank, 3) for rank in range(3)]
    assert [one["steps"] for one in found] == [7] * 3
    assert found[2]["rng"] is None
    assert str(found[1]["rng"]) == str(captured["rng"])
    assert str(found[0]["rng"]) == str(found[2]["first_rng"]) != str(found[1]["rng"])
