"""A training job on nodes that come and go: its ranks go in step, and a chain of digests is its state.

It trains until a test says that it has seen enough, so that no test depends on how fast the machine is. ``Scene`` is
one run on a cluster, and what a test does to the nodes meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import holdfast
import holdfast.train as train
from holdfast.runs.stored_experiment import load
from holdfast.store import journal
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.metrics import read_metrics

PATIENCE_S = 120.0


def next_state(state: str, step: int) -> str:
    return hashlib.sha256(f"{state} {step}".encode()).hexdigest()


def expected(steps: int) -> str:
    state = "start"
    for step in range(steps):
        state = next_state(state, step)
    return state


def train_fn(config: dict[str, Any]) -> str:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    state, step = "start", 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state, step = json.loads(Path(directory, "state.json").read_text())
    note(config, "start", rank, world, step, os.getpid())
    while not train.collective.broadcast_from_rank_zero(Path(config["enough"]).exists()):
        strike(config, rank, step)
        state, step = next_state(state, step), step + 1
        info = train.get_preemption_info()
        if info is not None:
            note(config, "notice", rank, step, info.deadline_ms, info.preempted_node_to_ranks)
        save(config, rank, world, state, step)
        note(config, "step", rank, world, step)
        time.sleep(config["pause_s"])
    return state


def save(config: dict[str, Any], rank: int, world: int, state: str, step: int) -> None:
    """Rank 0's is the state; where all ranks save, the others have a file of their own."""
    asked = config["asks"] and train.checkpoint_requested()
    due = asked or (config["every"] and step % config["every"] == 0)
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = None
        if due and (rank == 0 or config["all_save"]):
            name = "state.json" if rank == 0 else f"rank-{rank}.json"
            Path(directory, name).write_text(json.dumps([state, step]))
            checkpoint = train.Checkpoint.from_directory(directory)
        train.report({"step": step, "world": world}, checkpoint=checkpoint)


def strike(config: dict[str, Any], rank: int, step: int) -> None:
    """A fault has an address, and strikes as often as it is told to; no restart forgets a mark."""
    fault = config.get("fault")
    if fault is None or step < fault["at"] or rank != fault.get("rank", rank):
        return
    node = fault.get("node")
    marks = Path(config["marks"])
    if len(list(marks.iterdir())) >= fault.get("times", 1) or (node and node != node_id()):
        return
    (marks / str(time.monotonic_ns())).touch()
    if fault["kind"] == "exception":
        raise ValueError(fault.get("text", "planned failure"))
    if fault["kind"] == "hang":
        time.sleep(3600)
    os.kill(os.getpid(), signal.Signals[fault["kind"]])


def node_id() -> str:
    from holdfast.worker import session

    return session.current().node_id


def note(config: dict[str, Any], kind: str, *values: Any) -> None:
    with open(config["notes"], "a") as file:
        file.write(json.dumps([kind, *values]) + "\n")


class Scene:
    """A run named "run" on a cluster, in a directory of the test's own."""

    def __init__(self, home: Path, cluster: holdfast.LocalCluster) -> None:
        self.home, self.cluster = home, cluster
        self.storage: str | Path = home
        (home / "marks").mkdir(exist_ok=True)
        (home / "notes").touch()

    def trainer(
        self, workers: int | tuple[int, int], fn: Any = train_fn, kind: Any = None, **options: Any
    ) -> train.DataParallelTrainer:
        config = {"every": 1, "asks": True, "all_save": False, "pause_s": 0.01, **options.pop("config", {})}
        paths = {name: str(self.home / name) for name in ("enough", "marks", "notes")}
        scaling = train.ScalingConfig(
            num_workers=workers,
            elastic_resize_monitor_interval_s=0.0,
            placement_strategy=options.pop("placement", "PACK"),
        )
        verbose = options.pop("verbose", 0)
        return (kind or train.DataParallelTrainer)(
            fn,
            train_loop_config={**config, **paths},
            scaling_config=scaling,
            run_config=train.RunConfig(
                name="run",
                storage_path=str(self.storage),
                engine=self.cluster,
                failure_config=train.FailureConfig(**{"backoff_s": 0.01, **options}),
                verbose=verbose,
            ),
        )

    @contextmanager
    def meanwhile(self, act: Callable[[], None]) -> Iterator[None]:
        """Do that beside the run, which has seen enough then. When it goes wrong the run ends too."""
        errors: list[BaseException] = []

        def acting() -> None:
            try:
                act()
                self.enough()
            except BaseException as error:
                errors.append(error)
                self.cluster.close()

        thread = threading.Thread(target=acting)
        thread.start()
        try:
            yield
        finally:
            thread.join(PATIENCE_S)
            if errors:
                raise errors[0]

    def enough(self) -> None:
        (self.home / "enough").touch()

    def notes(self, kind: str) -> list[Any]:
        lines = [json.loads(line) for line in (self.home / "notes").read_text().splitlines()]
        return [tuple(values) for what, *values in lines if what == kind]

    def await_steps(self, more: int, world: int | None = None) -> None:
        """That rank 0 makes so many more steps, in a world of that size."""

        def made() -> int:
            return sum(1 for rank, size, _ in self.notes("step") if rank == 0 and world in (None, size))

        before = made()
        wait_until(lambda: made() >= before + more, f"{more} steps in a world of {world}")

    @property
    def run(self) -> RunLayout:
        return RunLayout(self.home / "run")

    def records(self, kind: str) -> list[Record]:
        return [record for record in journal.read(self.run)[0] if record.kind == kind]

    def await_record(self, kind: str, count: int = 1) -> None:
        wait_until(lambda: len(self.records(kind)) >= count, f"{count} records of {kind}")

    def worlds(self) -> list[int]:
        return [record.body["world_size"] for record in self.records("GroupStarted")]

    def lost_steps(self) -> list[int]:
        """By attempt, but for the last: how many of rank 0's steps its successor made again."""
        attempts = [(record.body["generation"], record.body["base"]) for record in self.records("GroupStarted")]
        return [
            base + len(self.reports(attempt_number)) - next_base
            for (attempt_number, base), (_, next_base) in pairwise(attempts)
        ]

    def reports(self, attempt_number: int) -> list[dict[str, Any]]:
        return read_metrics(self.run, attempt_number, 0)[0]

    def kinds(self) -> list[str]:
        """Of the failures that were counted."""
        return [failure.kind for failure in load(self.home / "run").ledger.failures]

    def check(self, result: train.Result) -> int:
        """The history is contiguous and the state is right; returns the number of steps."""
        history = load(Location.parse("storage", f"{self.storage}/run"))
        steps = [row["step"] for row in history.rows]
        assert steps == list(range(1, len(steps) + 1))
        assert result.return_value == expected(len(steps))
        return len(steps)


def wait_until(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come to pass"
        time.sleep(0.01)
