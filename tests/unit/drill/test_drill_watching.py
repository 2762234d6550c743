"""Which batches a drill sees: those that the train function was given, however far ahead a wrapper fetches."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.drill.watching import Watch, digest


class Loader:
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class Ahead:
    """Fetches a batch more than it hands on, as Accelerate does."""

    def __iter__(self) -> Iterator[int]:
        batches = iter(Loader())
        now = next(batches)
        for following in batches:
            yield now
            now = following
        yield now


def test_a_batch_counts_when_the_train_function_gets_it() -> None:
    watch = Watch()
    kept = Loader.__iter__, Ahead.__iter__
    try:
        for kind in (Loader, Ahead):
            watch._watch_loaders(kind)
        batches = iter(Ahead())
        assert [next(batches), next(batches)] == [0, 1]
        assert watch.take()["batches"] == [digest(0), digest(1)]
        assert list(batches) == [2, 3, 4]
        assert watch.take()["batches"] == [digest(2), digest(3), digest(4)]
        assert list(Loader()) == [0, 1, 2, 3, 4]
        assert len(watch.take()["batches"]) == 5, "one without a wrapper counts by itself"
    finally:
        Loader.__iter__, Ahead.__iter__ = kept  # type: ignore[method-assign]
