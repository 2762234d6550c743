"""Grid and random search: the variants of the search space, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.store import values
from holdfast.train.checks import check_int
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search_space import RandomSource, RandomState, Variant, count_variants, generate, source_of


class BasicVariantGenerator(Searcher):
    """The default search: grids and random draws. Variants are created on demand, so a grid may have any size.

    ``points_to_evaluate`` are configs, or parts of them, to try first; each replaces one sample. ``max_concurrent`` is
    how many trials may run in parallel, 0 for any number. ``constant_grid_search`` draws the random values once for
    each sample, not once for each point of the grid. ``random_state`` is a seed, or a generator with a ``random()``,
    for the same configs in every run.
    """

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        check_int("BasicVariantGenerator(max_concurrent", max_concurrent, least=0)
        self.max_concurrent = max_concurrent
        self._points = list(points_to_evaluate or [])
        self._constant_grid_search = constant_grid_search
        self._source: RandomSource | None = None
        if random_state is not None:
            self._source = copy.deepcopy(source_of(random_state))
        self._space: Mapping[str, Any] = {}
        self._num_samples = 1
        self._variants: Iterator[Variant] | None = None
        self._live: set[str] = set()
        self._given = 0
        self._given_before = 0  # returned by the generator whose state it took over

    @property
    def total_samples(self) -> float:
        """How many trials there will be; infinity for ``num_samples=-1``."""
        return count_variants(self._space, self._num_samples, self._points)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        num_samples = spec.get("num_samples", 1)
        check_int("TuneConfig(num_samples", num_samples, least=-1, note="; -1 continues until something stops it")
        self._metric, self._mode = metric, mode
        self._space, self._num_samples = config, num_samples
        if self._source is None and spec.get("seed") is not None:
            self._source = source_of(spec["seed"])
        return True

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if 0 < self.max_concurrent <= len(self._live):
            return None
        return self._next(trial_id)

    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> Any:
        return self._next(trial_id)

    def on_trial_resume(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self._live.add(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._live.discard(trial_id)

    def _next(self, trial_id: str) -> dict[str, Any] | str:
        if self._variants is None:
            self._variants = generate(
                self._space,
                self._num_samples,
                points_to_evaluate=self._points,
                constant_grid_search=self._constant_grid_search,
                random_state=self._source,
            )
            for _ in range(self._given_before):
                next(self._variants, None)
        variant = next(self._variants, None)
        if variant is None:
            return self.FINISHED
        self._live.add(trial_id)
        self._given += 1
        return variant.config

    def get_state(self) -> dict[str, Any]:
        """Return how many variants it has returned, and which trials have not finished."""
        return {"given": self._given_before + self._given, "live": sorted(self._live)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue with the next variant. Call it on a new generator with the same arguments and seed."""
        self._given_before, self._live = int(state["given"]), set(state["live"])

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_bytes(values.encode(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        self.set_state(values.decode(Path(checkpoint_path).read_bytes()))
