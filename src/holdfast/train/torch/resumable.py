"""A data loader that a checkpoint in the middle of an epoch can resume: the same order, after the last consumed batch.

Lightning saves the state of a loader that has ``state_dict``. It counts the batches that training consumed, not those
that loader processes have prefetched, and not the one that Lightning fetches to see whether the batch before is the
last, where a loader has no length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from holdfast.train.torch.rng import rng_state, set_rng_state


def make_resumable(
    loader: Any, epoch_is_over: Callable[[], bool], take_random: Callable[[], Any], waits: bool = True
) -> Any:
    """The same loader, now resumable. A loader with its own state is not changed.

    ``take_random`` returns the random state to continue with, once, if training resumes; else None. ``waits``: batches
    count as consumed when ``take`` says so; else when they are fetched.
    """
    if not isinstance(loader, DataLoader) or hasattr(loader, "state_dict"):
        return loader
    sampler = None
    if not isinstance(loader.dataset, IterableDataset):
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        sampler = _SkippingSampler(getattr(loader, name))
        # torch refuses to set it on an existing loader, because other attributes might not fit then.
        object.__setattr__(loader, name, sampler)
    loader._position = _Position(sampler, epoch_is_over, take_random, waits)
    loader.__class__ = _resumable(type(loader))
    return loader


def is_resumable(loader: Any) -> bool:
    """Whether ``make_resumable`` has changed it: other loaders may have a ``take`` of their own."""
    return isinstance(getattr(loader, "_position", None), _Position)


class _SkippingSampler:
    """Draws its first element immediately: random numbers are drawn in the same order with and without a skip."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.skip = 0

    def __getattr__(self, name: str) -> Any:
        if name == "_sampler":  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        elements = islice(iter(self._sampler), self.skip, None)
        return chain(list(islice(elements, 1)), elements)


class _Position:
    """Where training is in the epoch of a loader."""

    def __init__(
        self,
        sampler: _SkippingSampler | None,
        epoch_is_over: Callable[[], bool],
        take_random: Callable[[], Any],
        waits: bool,
    ) -> None:
        self._sampler, self._waits = sampler, waits
        self._epoch_is_over, self._take_random = epoch_is_over, take_random
        self._consumed, self._skip = 0, 0
        self._waiting = 0  # of the consumed batches: those that wait for their step
        self._begun: dict[str, Any] | None = None  # the random state at the start of the epoch

    def batches(self, iterate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Nothing happens before the first batch is asked for: until then others may draw random numbers."""
        resumed, skip, self._skip = self._take_random(), self._skip, 0
        start = self._begun if skip else resumed
        if start is not None:
            set_rng_state(start)
        self._begun, self._consumed, self._waiting = rng_state(), skip, 0
        batches = self._after(skip, iterate)
        if self._consumed and resumed is not None:
            set_rng_state(resumed)
        for batch in batches:
            self._consumed += 1
            self._waiting += self._waits
            yield batch

    def _after(self, skip: int, iterate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if self._sampler is None:
            return islice(iterate(), skip, None)
        self._sampler.skip = skip
        batches = iterate()  # with loader processes, it asks the sampler twice
        self._sampler.skip = 0
        return batches

    def take(self) -> None:
        self._waiting = max(0, self._waiting - 1)

    def save(self) -> dict[str, Any]:
        if self._epoch_is_over():
            return {"consumed": 0, "begun": None}
        return {"consumed": self._consumed - self._waiting, "begun": self._begun}

    def load(self, state: dict[str, Any]) -> None:
        self._skip, self._begun = state["consumed"], state["begun"]


def _resumable(base: type[Any]) -> type[Any]:
    class Resumable(base):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return self._position.batches(super().__iter__)  # type: ignore[no-any-return]

        def take(self) -> None:
            """A step begins with the next batch."""
            self._position.take()

        def state_dict(self) -> dict[str, Any]:
            return self._position.save()  # type: ignore[no-any-return]

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self._position.load(state_dict)

    Resumable.__name__ = Resumable.__qualname__ = base.__name__
    return Resumable
