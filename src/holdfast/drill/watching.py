"""What a train function does between two reports, as far as torch shows it: its batches, learning rates, schedules and
random states. Only digests and small numbers; without torch, nothing."""

from __future__ import annotations

import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import xxhash

# What wraps a loader and fetches from it ahead of the train function: a batch counts when it is handed on.
_WRAPPERS = {"accelerate.data_loader": ("DataLoaderShard", "DataLoaderDispatcher")}


class Watch:
    def __init__(self) -> None:
        self._batches: list[str] = []
        self._rates: list[list[float]] = []  # of every optimizer step since the last report
        self._schedules: list[weakref.ref[Any]] = []
        self._reduces = False
        self.on_model: Callable[[Any], None] = _nothing  # called with each model in DistributedDataParallel
        self.on_update: Callable[[], None] = _nothing  # called before each update of an optimizer
        self._installed = False
        self._wrapped: set[str] = set()
        self._fetching: set[int] = set()  # the threads that do

    def install(self) -> None:
        """Once torch is imported; called again with each report, as the train function may import it itself."""
        torch: Any = sys.modules.get("torch")
        for module in _WRAPPERS.keys() & sys.modules.keys() - self._wrapped:
            self._wrapped.add(module)
            for name in _WRAPPERS[module]:
                self._watch_loaders(getattr(sys.modules[module], name))
        if torch is None or self._installed or "torch.utils.data" not in sys.modules:
            return
        self._installed = True
        self._watch_loaders(torch.utils.data.DataLoader)
        from torch.optim import lr_scheduler, optimizer

        optimizer.register_optimizer_step_pre_hook(lambda *_: self.on_update())
        optimizer.register_optimizer_step_post_hook(self._note_step)
        self._watch_models(torch.nn.parallel.DistributedDataParallel)
        begin = lr_scheduler.LRScheduler.__init__

        def beginning(schedule: Any, *args: Any, **kwargs: Any) -> None:
            self._schedules.append(weakref.ref(schedule))
            begin(schedule, *args, **kwargs)

        lr_scheduler.LRScheduler.__init__ = beginning

    def _watch_models(self, kind: Any) -> None:
        begin = kind.__init__

        def beginning(model: Any, *args: Any, **kwargs: Any) -> None:
            begin(model, *args, **kwargs)
            self._reduces = True
            self.on_model(model)

        kind.__init__ = beginning

    @property
    def updates(self) -> int:
        """How many there were since the last report."""
        return len(self._rates)

    def _watch_loaders(self, loader: Any) -> None:
        iterate = loader.__iter__
        loader.__iter__ = lambda this: _Watched(iterate(this), self)

    @contextmanager
    def handing_on(self) -> Iterator[bool]:
        """Whether a batch that is fetched meanwhile is for the train function, and not for a wrapper of the loader."""
        thread = threading.get_ident()
        if thread in self._fetching:
            yield False
            return
        self._fetching.add(thread)
        try:
            yield True
        finally:
            self._fetching.discard(thread)

    def note_batch(self, batch: Any) -> None:
        self._batches.append(digest(batch))

    def _note_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._rates.append([float(group["lr"]) for group in optimizer.param_groups])

    def take(self) -> dict[str, Any]:
        """The observations since the last call."""
        self.install()
        schedules = [schedule() for schedule in self._schedules]
        taken = {
            "batches": list(self._batches),
            "steps": len(self._rates),
            "reduces": self._reduces,
            "rates": [self._rates[0], self._rates[-1]] if self._rates else [],
            "schedules": [getattr(schedule, "last_epoch", None) for schedule in schedules if schedule is not None],
            "random": _random_states(),
        }
        self._batches.clear()
        self._rates.clear()
        return taken


def _nothing(*_: Any) -> None: ...


class _Watched:
    """A loader's iterator that notes each batch as it is taken."""

    def __init__(self, iterator: Any, watch: Watch) -> None:
        self._iterator, self._watch = iterator, watch

    def __iter__(self) -> _Watched:
        return self

    def __next__(self) -> Any:
        with self._watch.handing_on() as is_for_the_train_function:
            batch = next(self._iterator)
        if is_for_the_train_function:
            self._watch.note_batch(batch)
        return batch

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def digest(value: Any) -> str:
    hasher = xxhash.xxh3_64()
    _feed(hasher, value)
    return str(hasher.hexdigest())


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, dict):
        for key in value:
            hasher.update(repr(key).encode())
            _feed(hasher, value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            _feed(hasher, item)
    elif hasattr(value, "detach") and hasattr(value, "untyped_storage"):
        hasher.update(f"{value.dtype} {tuple(value.shape)}".encode())
        hasher.update(tensor_bytes(value))
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        hasher.update(f"{value.dtype} {value.shape}".encode())
        hasher.update(value.tobytes())
    else:
        hasher.update(repr(value).encode(errors="backslashreplace"))


def tensor_bytes(tensor: Any) -> bytes:
    torch: Any = sys.modules["torch"]
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def _random_states() -> dict[str, str]:
    states = {"python": digest(random.getstate())}
    if "numpy" in sys.modules:
        states["numpy"] = digest(sys.modules["numpy"].random.get_state())
    if "torch" in sys.modules:
        states["torch"] = digest(sys.modules["torch"].get_rng_state())
    return states
