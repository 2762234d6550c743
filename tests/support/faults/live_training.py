"""A training whose ranks are killed at addresses (rank, step, place), and whose every update is written down.

Each process notes ``step pid`` for each update that its optimizer makes, so a test sees what was done twice.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import holdfast.train as train
from holdfast.core.run import events as ev
from holdfast.store import journal
from holdfast.store.layout import RunLayout
from holdfast.train.torch import TorchTrainer, TrainState, prepare_data_loader, prepare_model
from holdfast.worker.session import current

# Where a rank may be killed: between two steps, in the forward pass, in the backward pass while gradients are reduced,
# between the last collective and the update, behind the update.
PLACES = ("before", "forward", "backward", "soon", "update", "updated")
Kill = tuple[int, int, str]
EPOCHS = 4
SAMPLES = 360


def drawn_kills(seed: int, world_size: int, count: int, steps: int) -> list[Kill]:
    random = Random(seed)
    # Not in two steps in a row: a rank that is one step ahead would be killed while the other is being replaced.
    chosen = sorted(random.sample(range(2, steps - 1, 2), count))
    return [(random.randrange(world_size), step, random.choice(PLACES)) for step in chosen]


def steps_of(world_size: int) -> int:
    return EPOCHS * (SAMPLES // (4 * world_size))


def train_fn(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(SAMPLES, 10)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = prepare_data_loader(DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True))
    layers = (torch.nn.Linear(10, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
    few_bytes = {"bucket_cap_mb": 0.001}  # so that a step has several collectives
    model = prepare_model(torch.nn.Sequential(*layers), parallel_strategy_kwargs=few_bytes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = TrainState(model=model, optimizer=optimizer, loader=loader, best=9.0)
    came = Path(config["notes"], f"came-{os.getpid()}")
    came.touch()
    resumed = state.resume()
    rank = train.get_context().get_world_rank()
    came.rename(came.with_name(f"process-{os.getpid()}"))
    Path(config["notes"], f"node-{rank}").write_text(current().node_id)
    if not resumed:
        torch.manual_seed(rank)
    killer = _Killer(config, rank, state)
    layers[0].weight.register_hook(lambda _: killer.at("backward"))
    optimizer.register_step_pre_hook(lambda *_: killer.at("update"))
    optimizer.register_step_post_hook(lambda *_: killer.note())

    @state.recoverable
    def step(inputs: Any, wanted: Any) -> Any:
        killer.at("forward")
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        killer.at("soon")
        loss.backward()
        optimizer.step()
        killer.at("updated")
        return loss

    for epoch in state.epochs(EPOCHS):
        for inputs, wanted in loader:
            killer.at("before")
            killer.at("standby")
            if state.steps == config.get("waits_at"):
                await_event(Path(config["notes"]).parent, ev.RankMoved)
            loss = step(inputs, wanted)
            state.best = min(state.best, loss.item())
            if config.get("snapshots"):
                state.snapshot()
        state.report({"epoch": epoch, "loss": loss.item(), "steps": state.steps})
    torch.save(model.module.state_dict(), Path(config["notes"], f"weights-{rank}.pt"))


class _Killer:
    def __init__(self, config: dict[str, Any], rank: int, state: TrainState) -> None:
        self._rank, self._state, self._notes = rank, state, Path(config["notes"])
        self._kills = {(step, place) for on, step, place in config["kills"] if on == rank}
        self._signal = config.get("signal", signal.SIGKILL)
        self._with_standby = config.get("with_standby", False)

    def at(self, place: str) -> None:
        address = (self._state.steps, place)
        if address not in self._kills:
            return
        try:
            Path(self._notes, f"killed-{self._rank}-{address[0]}-{place}").open("x").close()
        except FileExistsError:
            return  # once
        if self._with_standby:
            _await_standby(self._notes.parent)
        if place == "standby":
            _kill_standbys(self._notes)
            await_event(self._notes.parent, ev.StandbyLost)
        elif place == "soon":
            threading.Thread(target=self._kill_soon, daemon=True).start()
        else:
            os.kill(os.getpid(), self._signal)

    def _kill_soon(self) -> None:
        time.sleep(0.0005 * Random(self._state.steps).random())  # somewhere within the collectives
        os.kill(os.getpid(), self._signal)

    def note(self) -> None:
        with Path(self._notes, f"updates-{self._rank}").open("a") as file:
            file.write(f"{self._state.steps} {os.getpid()}\n")


def _await_standby(directory: Path) -> None:
    """Until the driver knows of one that is ready."""
    deadline = time.monotonic() + 90.0
    while time.monotonic() < deadline:
        told = events_of(directory)
        used = sum(kind == ev.WorkerFailed.__name__ and body["standby"] > 0 for kind, body in told)
        lost = sum(kind == ev.StandbyLost.__name__ for kind, _ in told)
        if sum(kind == ev.StandbyReady.__name__ for kind, _ in told) > used + lost:
            return
        time.sleep(0.02)
    raise TimeoutError("no standby was ready within 90 s")


def await_event(directory: Path, kind: type[ev.Event]) -> None:
    deadline = time.monotonic() + 90.0
    while kind.__name__ not in [name for name, _ in events_of(directory)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {kind.__name__} within 90 s")
        time.sleep(0.02)


def _kill_standbys(notes: Path) -> None:
    for path in notes.glob("came-*"):
        path.unlink()
        os.kill(int(path.name.partition("-")[2]), signal.SIGKILL)


def trained(
    directory: Path, world_size: int, kills: list[Kill], standby_workers: int = 0, engine: Any = None, **options: Any
) -> train.Result:
    (directory / "notes").mkdir(parents=True)
    config = {"notes": str(directory / "notes"), "kills": kills, "with_standby": standby_workers > 0, **options}
    failure = train.FailureConfig(max_failures=-1, backoff_s=0.01)
    return TorchTrainer(
        train_fn,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=world_size, standby_workers=standby_workers),
        run_config=train.RunConfig(name="run", storage_path=str(directory), failure_config=failure, engine=engine),
    ).fit()


def weights(directory: Path, world_size: int) -> list[dict[str, Any]]:
    return [torch.load(directory / "notes" / f"weights-{rank}.pt") for rank in range(world_size)]


def events_of(directory: Path) -> list[tuple[str, Any]]:
    records, _ = journal.read(RunLayout(directory / "run"))
    return [(record.kind, record.body) for record in records]


def processes_left(directory: Path) -> list[str]:
    came = [path.name for pattern in ("came-*", "process-*") for path in (directory / "notes").glob(pattern)]
    return [name for name in came if Path(f"/proc/{name.partition('-')[2]}").exists()]


def check_that_no_step_was_lost(directory: Path, world_size: int, kills: list[Kill], undisturbed: Path) -> None:
    """One attempt; no process made an update twice or left one out; a replacement began where the others were; nobody
    is left."""
    assert not processes_left(directory)
    happened = {path.name for path in (directory / "notes").glob("killed-*")}
    assert happened == {f"killed-{rank}-{step}-{place}" for rank, step, place in kills}
    kinds = [kind for kind, _ in events_of(directory)]
    assert kinds.count(ev.AttemptStarted.recorded_as) == 1, kinds
    assert kinds.count(ev.WorkerFailed.__name__) == sum(place != "standby" for _, _, place in kills)
    for rank in range(world_size):
        of_process: dict[str, list[int]] = defaultdict(list)
        for line in (directory / "notes" / f"updates-{rank}").read_text().splitlines():
            step, pid = line.split()
            of_process[pid].append(int(step))
        reached = 0
        for made in of_process.values():
            assert made == list(range(made[0], made[-1] + 1)), f"rank {rank}: {made}"
            # A rank that was killed right before its update left that step to its peers.
            killed = sum(on == rank and reached <= step < made[0] for on, step, _ in kills)
            assert -1 <= made[0] - reached <= killed, f"rank {rank} began at {made[0]}, and had come to {reached}"
            reached = made[-1] + 1
        assert reached == steps_of(world_size)
    for ours, theirs in zip(weights(directory, world_size), weights(undisturbed, world_size), strict=True):
        assert ours.keys() == theirs.keys()
        # DDP keeps rank 0's running statistics, which are lost with rank 0.
        lost = [name for name in ours if "running" in name and any(rank == 0 for rank, _, _ in kills)]
        assert [name for name in ours if name not in lost and not torch.equal(ours[name], theirs[name])] == []
