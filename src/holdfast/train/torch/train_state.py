"""``TrainState``: everything that a training script must save to resume, in one object.

It holds the script's own objects and reads and writes their ``state_dict``s; ``report`` and ``get_checkpoint`` are
unchanged. A state is captured between two steps, never within one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast.train import api
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.data import is_shard
from holdfast.train.torch import state_files, state_parts, state_snapshots
from holdfast.train.torch.elastic import ElasticLoader
from holdfast.train.torch.order import derive
from holdfast.train.torch.rng import rng_state, seed_rng, set_rng_state


class TrainState:
    """The training state to save and resume: the model, the optimizer, the schedule, the data loader, and plain values.

    In ``TrainState(model=model, optimizer=optimizer, loader=loader, best=0.0)``, each component is an object with
    ``state_dict`` and ``load_state_dict``, or a plain value. Plain values are attributes: ``state.best = 0.9``. The
    state also holds the random numbers of torch, NumPy and Python of each rank. ``steps`` counts completed steps.

    ``for epoch in state.epochs(10)`` resumes in the epoch in which the state was saved. The loader of
    ``prepare_data_loader`` resumes at the batch.
    """

    steps: int
    epoch: int
    _writer: state_snapshots.SnapshotWriter | None

    def __init__(self, **components: Any) -> None:
        taken = sorted(
            name for name in components if name.startswith("_") or name == "steps" or hasattr(type(self), name)
        )
        if taken:
            raise ValueError(f"TrainState({taken[0]}=…): this name is taken, choose another")
        components.setdefault("epoch", 0)
        parts = {name: value for name, value in components.items() if state_parts.has_state(value)}
        values = {name: state_parts.plain(value, name) for name, value in components.items() if name not in parts}
        self.__dict__.update(
            _parts=parts, _values=values, _in_epoch=False, _writer=None, _resumed=False, _counted=False, steps=0
        )
        self.__dict__["_complete"] = None  # the newest snapshot that was complete when this process joined its peers

    def __getattr__(self, name: str) -> Any:
        for known in (self.__dict__.get("_values", {}), self.__dict__.get("_parts", {})):
            if name in known:
                return known[name]
        raise AttributeError(f"TrainState has no {name!r}; pass it to TrainState({name}=…)")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._values:
            self._values[name] = state_parts.plain(value, name)
        elif name == "steps" or name.startswith("_"):
            self.__dict__[name] = value
        elif name in self._parts and state_parts.has_state(value):
            self._parts[name] = value
        else:
            raise AttributeError(f"TrainState has no value {name!r}; pass it to TrainState({name}=…)")

    def resume(self) -> bool:
        """Load the newest state of the run: from memory if possible, otherwise from the newest checkpoint. Return False
        if there is none; training then starts from the beginning.
        """
        session = api.session_for("torch.TrainState.resume")
        self._resumed = True
        if not session.place.is_known:
            self._live().stand_by()
        memory = session.memory
        if session.joins:
            self._live().join()
            return True
        if memory is not None and memory.step >= 0:
            found = state_snapshots.read(memory, self._parts, session.rank, session.world_size)
            self._take_up(found, session.rank)
            return True
        checkpoint = api.get_checkpoint()
        if checkpoint is None:
            return False
        with checkpoint.as_directory() as directory:
            self._load(Path(directory), session.rank, session.world_size)
        return True

    def recoverable(self, step: Callable[..., Any] | None = None, *, by_steps: bool = False) -> Any:
        """Decorate the function that does one whole optimizer step: forward, backward, ``optimizer.step()``.

        When another rank is lost within it, that rank alone is replaced and gets the state of a survivor, and the step
        is done again with the same batch; nothing that was completed is done again. It counts ``steps``. The
        replacement must come to the same batch: by the loader of ``prepare_data_loader`` in this state, or, with
        ``by_steps``, by ``steps`` alone. Where this is not possible, a lost rank ends the attempt, as without it.
        """
        if step is None:
            return lambda function: self.recoverable(function, by_steps=by_steps)
        self._counted = True
        return self._live().recoverable(step, by_steps)

    def _live(self) -> Any:
        from holdfast.train.torch.live_step import LiveSteps

        if self.__dict__.get("_steps") is None:
            self.__dict__["_steps"] = LiveSteps(self, api.session_for("torch.TrainState"))
        return self.__dict__["_steps"]

    def _load(self, directory: Path, rank: int, world_size: int) -> None:
        self._take_up(state_files.read(directory, self._parts, rank, world_size), rank)

    def _take_up(self, found: dict[str, Any], rank: int) -> None:
        self.apply(found)
        if found["rng"] is None:
            # A rank that did not exist when the state was saved: its own numbers, the same at each resume.
            seed_rng(derive("torch", *found["first_rng"]["torch"].tolist()), rank)

    def epochs(self, total: int) -> Iterator[int]:
        """Yield the remaining epochs of ``total``.

        If a state is saved after its data loaders have finished their epoch, training resumes with the next epoch.
        Without a data loader in the state, training resumes with the epoch after the last report.
        """
        for epoch in range(self.epoch, total):
            self.epoch, self._in_epoch = epoch, True
            yield epoch
            self.epoch, self._in_epoch = epoch + 1, False

    def snapshot(self, every: int = 1, share: float | None = None) -> None:
        """Count a completed step (``recoverable`` does that itself), and keep the state after it in memory, where it
        survives this process.

        Call it on every rank after each optimizer step. The next update of an optimizer waits until the state is saved
        on all ranks, so that at most one completed step can be lost. ``every`` takes a snapshot only after that many
        steps. ``share`` takes snapshots as often as possible without using more than this fraction of the time (0.02 is
        2 %).
        """
        if not self._resumed:
            raise RuntimeError(
                "TrainState.snapshot(): call resume() before the first one; it returns False at the start"
            )
        session = api.session_for("torch.TrainState.snapshot")
        if not self._counted:  # by ``recoverable``
            self.steps += 1
        if self._writer is None:
            self._writer = state_snapshots.SnapshotWriter(session, session.memory, self._complete)
        if self._writer.count_step(self.steps, every, share):
            self._writer.take(self.capture(), self._parts)

    def _regrouped(self, complete: tuple[int, int] | None) -> None:
        """Ranks were replaced; this is the newest snapshot that is complete, by attempt and step."""
        self.__dict__["_complete"] = complete
        if self._writer is not None:
            self._writer.replaced(complete)

    def report(self, metrics: dict[str, Any], checkpoint: bool = True, **options: Any) -> None:
        """Call ``train.report`` with a checkpoint of this state. Every rank must call it, after the same step.

        With ``checkpoint=False`` it reports only the metrics, unless the run has asked for a checkpoint
        (``train.checkpoint_requested()``). ``options`` are those of ``train.report``.
        """
        session = api.session_for("torch.TrainState.report")
        if not checkpoint and not api.checkpoint_requested():
            api.report(metrics)
            return
        directory = tempfile.mkdtemp()
        captured = self.capture()
        if self._in_epoch and not self._loaders():
            captured["values"]["epoch"] = self.epoch + 1  # nothing says how far it has come: a report ends it
        state_files.write(Path(directory), captured, self._parts, session.rank, session.world_size)
        options = {"delete_local_checkpoint_after_upload": True, **options}
        api.report(metrics, Checkpoint.from_directory(directory), **options)

    def capture(self) -> dict[str, Any]:
        """Return the current state: ``{"steps", "values", "parts", "rng"}``. It holds the tensors that are being
        trained, not copies.
        """
        values = {**self._values}
        loaders = self._loaders()
        if self._in_epoch and loaders and all(ended(loader, self.epoch) for loader in loaders):
            values["epoch"] = self.epoch + 1
        return {"steps": self.steps, "values": values, "parts": state_parts.collect(self._parts), "rng": rng_state()}

    def apply(self, captured: dict[str, Any]) -> None:
        """Load a captured state, from here or from another process. Its tensors are copied. Random numbers are restored
        last, so loading a state cannot change them.
        """
        unknown = sorted(
            (captured["values"].keys() | captured["parts"].keys()) - self._values.keys() - self._parts.keys()
        )
        missing = sorted(
            (self._values.keys() | self._parts.keys()) - captured["values"].keys() - captured["parts"].keys()
        )
        if unknown or missing:
            which = f"no {missing[0]!r}" if missing else f"{unknown[0]!r}, which this TrainState has not"
            raise ValueError(
                f"TrainState.resume(): the saved state has {which}; use the names that it was saved with, or another "
                "run name"
            )
        state_parts.restore(self._parts, captured["parts"])
        self._values.update(captured["values"])
        self.steps = captured["steps"]
        if captured.get("rng") is not None:
            set_rng_state(captured["rng"])

    def _loaders(self) -> list[Any]:
        return [
            part
            for part in self._parts.values()
            if is_shard(part) or (not state_parts.is_replicated(part) and hasattr(part, "__iter__"))
        ]


def ended(loader: Any, epoch: int) -> bool:
    """Whether a data loader, or the shard of a dataset, has given all batches of the epoch. Torchdata's says so in its
    state."""
    if isinstance(loader, ElasticLoader) or is_shard(loader):
        return int(loader.epoch) > epoch
    return bool(loader.state_dict().get("_iterator_finished", False))
